// Encoders for the messages that carry bytes: what protobuf-es copies twice is copied once here.
// Must not import gRPC. Decoding stays with protobuf-es, whose messages share the bytes they come from.
import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import {
  FileChunkSchema,
  type OutputChunk,
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

/**
 * A message that becomes bytes where they are wanted: the two members of `Buffer` by which a grpc-js server
 * moves an encoded answer into the frame that it sends. So the bytes of a large answer are copied once.
 */
export type Encoded = Pick<Buffer, "byteLength"> & {
  /** Writes all bytes of the message to `target`, from `at` on. */
  copy(target: Uint8Array, at: number): void;
};

/** `prefix`, then field `fieldNumber` with `data`, which must not change before it is copied. */
class EncodedBytesField implements Encoded {
  readonly byteLength: number;
  readonly #prefix: readonly number[];
  readonly #fieldNumber: number;
  readonly #data: Uint8Array;

  constructor(prefix: readonly number[], fieldNumber: number, data: Uint8Array) {
    this.#prefix = prefix;
    this.#fieldNumber = fieldNumber;
    this.#data = data;
    this.byteLength = prefix.length + 1 + varintLength(data.length) + data.length;
  }

  copy(target: Uint8Array, at: number): void {
    target.set(this.#prefix, at);
    let end = at + this.#prefix.length;
    target[end++] = this.#fieldNumber << 3 | LENGTH_DELIMITED;
    end = writeVarint(target, end, this.#data.length);
    target.set(this.#data, end);
  }
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
export function encodeFileChunk(message: MessageShape<typeof FileChunkSchema>): Encoded {
  return isPlain(message, FileChunkSchema.typeName, message.data)
    ? new EncodedBytesField([], 1, message.data)
    : encodeByReflection(FileChunkSchema, message);
}

/** Encodes like `toBinary(OutputChunkSchema, message)`, byte for byte. */
export function encodeOutputChunk(message: MessageShape<typeof OutputChunkSchema>): Encoded {
  const { data, source } = message;
  return isPlain(message, OutputChunkSchema.typeName, data) && isSmallEnum(source)
    ? new EncodedBytesField(source === 0 ? [] : [1 << 3, source], 2, data)
    : encodeByReflection(OutputChunkSchema, message);
}

/** Encodes like `toBinary(WriteFileRequestSchema, message)`, byte for byte. For clients: in one piece. */
export function encodeWriteFileRequest(
  message: MessageShape<typeof WriteFileRequestSchema>,
): Buffer {
  // Path and mode come with the first message of an upload only.
  const isBytesOnly = message.path === "" && message.mode === 0 &&
    isPlain(message, WriteFileRequestSchema.typeName, message.chunk);
  if (!isBytesOnly) return encodeByReflection(WriteFileRequestSchema, message);
  const encoded = new EncodedBytesField([], 2, message.chunk);
  const bytes = Buffer.allocUnsafe(encoded.byteLength);
  encoded.copy(bytes, 0);
  return bytes;
}

/** Enum values that take one byte; negative ones take ten. */
function isSmallEnum(source: OutputChunk["source"]): boolean {
  return Number.isInteger(source) && source >= 0 && source < 128;
}
