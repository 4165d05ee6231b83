// What can be uploaded, and the messages that it becomes.
// Must not make calls.
import { create } from "@bufbuild/protobuf";
import {
  type WriteFileRequest,
  WriteFileRequestSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { MAX_PIECE_BYTES } from "../limits.ts";
import { joinBytes } from "./byte_stream.ts";

/** Content that is read once. */
export type ByteSource = ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/**
 * Content of an upload. Text, bytes and a function that opens the content anew survive a lost
 * connection; a stream or iterable can be read only once.
 */
export type UploadSource =
  | string
  | Uint8Array
  | ByteSource
  | (() => ByteSource | Promise<ByteSource>);

/** Small chunks are joined up to this size: a message costs the same whatever it carries. */
const JOIN_BELOW_BYTES = 64 * 1024;

/** Whether `source` can be read from its start a second time. */
export function canReopen(source: UploadSource): boolean {
  return typeof source === "string" || typeof source === "function" ||
    source instanceof Uint8Array;
}

/** The chunks of `source`, from its start. */
export async function* openSource(source: UploadSource): AsyncGenerator<Uint8Array> {
  if (typeof source === "string") yield new TextEncoder().encode(source);
  else if (source instanceof Uint8Array) yield source;
  else yield* (typeof source === "function" ? await source() : source) as AsyncIterable<Uint8Array>;
}

/** Chunks of any size -> pieces that each fill a message well and fit into it. Nothing is empty. */
export async function* toPieces(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let small: Uint8Array[] = [];
  let smallBytes = 0;
  for await (const chunk of chunks) {
    if (smallBytes + chunk.length < JOIN_BELOW_BYTES) {
      if (chunk.length === 0) continue;
      // A copy: the source may use its buffer again for the next chunk.
      small.push(chunk.slice());
      smallBytes += chunk.length;
      continue;
    }
    const joined = smallBytes === 0 ? chunk : joinBytes([...small, chunk]);
    small = [];
    smallBytes = 0;
    for (let offset = 0; offset < joined.length; offset += MAX_PIECE_BYTES) {
      yield joined.subarray(offset, offset + MAX_PIECE_BYTES);
    }
  }
  if (smallBytes > 0) yield joinBytes(small);
}

/** The messages of one WriteFile: the first carries path and mode, and is there for an empty file too. */
export async function* toWriteRequests(
  path: string,
  mode: number,
  pieces: AsyncIterable<Uint8Array>,
): AsyncGenerator<WriteFileRequest> {
  let isFirst = true;
  for await (const chunk of pieces) {
    yield create(WriteFileRequestSchema, isFirst ? { path, mode, chunk } : { chunk });
    isFirst = false;
  }
  if (isFirst) yield create(WriteFileRequestSchema, { path, mode });
}
