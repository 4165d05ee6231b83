// Encoders for the messages that carry bytes: what protobuf-es copies twice is copied once here.
// Must not import gRPC. Decoding stays with protobuf-es, whose messages share the bytes they come from.
import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import type {
  FileChunkSchema,
  OutputChunk,
  OutputChunkSchema,
  WriteFileRequestSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";

/** Below this protobuf-es is as fast, and Buffer's pool is of use. */
const MIN_FAST_BYTES = 1024;

/** A length-delimited field: wire type 2 (https://protobuf.dev/programming-guides/encoding/). */
const LENGTH_DELIMITED = 2;

function varintLength(value: number): number {
  let length = 1;
  for (let left = value; left > 127; left = Math.floor(left / 128)) length++;
  return length;
}

function writeVarint(target: Uint8Array, offset: number, value: number): number {
  let at = offset;
  let left = value;
  while (left > 127) {
    target[at++] = left % 128 | 128;
    left = Math.floor(left / 128);
  }
  target[at++] = left;
  return at;
}

/** `prefix`, then field `fieldNumber` with `data`: one allocation, one copy. */
function encodeBytesField(
  prefix: readonly number[],
  fieldNumber: number,
  data: Uint8Array,
): Buffer {
  const head = prefix.length + 1 + varintLength(data.length);
  const encoded = Buffer.allocUnsafe(head + data.length);
  encoded.set(prefix);
  encoded[prefix.length] = fieldNumber << 3 | LENGTH_DELIMITED;
  writeVarint(encoded, prefix.length + 1, data.length);
  encoded.set(data, head);
  return encoded;
}

/** The bytes of `message`, by protobuf-es. */
export function encodeByReflection<D extends DescMessage>(
  schema: D,
  message: MessageShape<D>,
): Buffer {
  const bytes = toBinary(schema, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Whether `message` is one of `typeName` whose field `data` alone is worth the fast path. */
function isPlain(
  message: { readonly $typeName: string; readonly $unknown?: readonly unknown[] | undefined },
  typeName: string,
  data: unknown,
): data is Uint8Array {
  return message.$typeName === typeName && message.$unknown === undefined &&
    data instanceof Uint8Array && data.length >= MIN_FAST_BYTES;
}

/** Encodes like `toBinary(FileChunkSchema, message)`, byte for byte. */
export function encodeFileChunk(
  schema: typeof FileChunkSchema,
  message: MessageShape<typeof FileChunkSchema>,
): Buffer {
  return isPlain(message, schema.typeName, message.data)
    ? encodeBytesField([], 1, message.data)
    : encodeByReflection(schema, message);
}

/** Encodes like `toBinary(WriteFileRequestSchema, message)`, byte for byte. */
export function encodeWriteFileRequest(
  schema: typeof WriteFileRequestSchema,
  message: MessageShape<typeof WriteFileRequestSchema>,
): Buffer {
  // Path and mode come with the first message of an upload only.
  return isPlain(message, schema.typeName, message.chunk) && message.path === "" &&
      message.mode === 0
    ? encodeBytesField([], 2, message.chunk)
    : encodeByReflection(schema, message);
}

/** Encodings of output that more than one follower asked for; null after the first one did. */
const shared = new WeakMap<Uint8Array, { source: number; encoded: Buffer } | null>();

/**
 * Encodes like `toBinary(OutputChunkSchema, message)`, byte for byte. Followers at the live tail of a
 * process send the same `data` object, which must not change: from the second one on they share one
 * encoding, which lives as long as the object. A single follower costs no memory beside its message.
 */
export function encodeOutputChunk(
  schema: typeof OutputChunkSchema,
  message: MessageShape<typeof OutputChunkSchema>,
): Buffer {
  const { data, source } = message;
  if (!isPlain(message, schema.typeName, data) || !isSmallEnum(source)) {
    return encodeByReflection(schema, message);
  }
  const known = shared.get(data);
  if (known?.source === source) return known.encoded;
  const encoded = encodeBytesField(source === 0 ? [] : [1 << 3, source], 2, data);
  shared.set(data, known === undefined ? null : { source, encoded });
  return encoded;
}

/** Enum values that take one byte; negative ones take ten. */
function isSmallEnum(source: OutputChunk["source"]): boolean {
  return Number.isInteger(source) && source >= 0 && source < 128;
}
