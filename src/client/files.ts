// Files of the sandbox, read and written as streams.
// Must not touch local files.
import { createHash, type Hash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { ReadFileRequestSchema } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { fileSystemServiceDefinition } from "../wire/definitions.ts";
import { collectBytes, toReadableStream } from "./byte_stream.ts";
import type { Channel } from "./channel.ts";
import { AteenvError, isFromAgent, throwIfAborted } from "./error.ts";
import type { AbortOptions } from "./process.ts";
import { Retry, type RetryPolicy } from "./retry.ts";
import { canReopen, openSource, toPieces, toWriteRequests, type UploadSource } from "./upload.ts";

/** How to write a file. */
export interface WriteOptions extends AbortOptions {
  /** Permission bits; 0 (the default) keeps those of an existing file and gives a new one 0644. */
  readonly mode?: number;
}

/** The files of a sandbox. Paths are absolute, or relative to the workspace. */
export class Files {
  readonly #channel: Channel;
  readonly #retry: RetryPolicy;

  /** @ignore Made by `connect`. */
  constructor(channel: Channel, retry: RetryPolicy) {
    this.#channel = channel;
    this.#retry = retry;
  }

  /**
   * The content of a file, read as it is consumed. A missing file shows as an error of the first read.
   *
   * The API cannot read from an offset. After a lost connection the file is read again from its start,
   * and what was delivered before is skipped if it is still the same (by SHA-256): what is delivered
   * altogether is then exactly what the last attempt read. Otherwise the stream fails with
   * `interrupted`.
   *
   * ```ts
   * import { connect } from "@ateenv/ateenvd";
   *
   * await using client = await connect();
   * await client.files.write("data.bin", new Uint8Array(3_000_000));
   * let bytes = 0;
   * for await (const chunk of client.files.read("data.bin")) bytes += chunk.length;
   * ```
   */
  read(path: string, options: AbortOptions = {}): ReadableStream<Uint8Array<ArrayBuffer>> {
    return toReadableStream((signal) => this.#chunks(path, signal), options.signal);
  }

  /**
   * The content of a file as text (UTF-8).
   *
   * @throws {AteenvError} `not-found`, `permission-denied`, `failed-precondition` for a directory, ...
   */
  async readText(path: string, options: AbortOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.readBytes(path, options));
  }

  /** The content of a file as bytes. */
  async readBytes(path: string, options: AbortOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    return await collectBytes(this.#chunks(path, options.signal));
  }

  /**
   * Replaces a file, atomically, or makes it, and its parents. Returns the bytes written, which are on
   * the sandbox's disk then. However it fails, the file is as it was, or (after `outcome-unknown`
   * only) perhaps complete and new.
   *
   * After a lost connection text, bytes and what a function opens are sent again from the start. A
   * stream or iterable cannot be, once something was taken from it.
   *
   * ```ts
   * import { connect } from "@ateenv/ateenvd";
   *
   * await using client = await connect();
   * await client.files.write("bin/hello", "#!/bin/sh\necho hello\n", { mode: 0o755 });
   * await client.files.write("data.bin", () => new Blob(["a stream, opened anew if need be"]).stream());
   * ```
   *
   * @throws {AteenvError} `outcome-unknown` where the answer was lost and the source cannot be read again.
   */
  async write(path: string, source: UploadSource, options: WriteOptions = {}): Promise<number> {
    const { signal, mode = 0 } = options;
    const retry = new Retry(this.#retry);
    for (;;) {
      throwIfAborted(signal);
      let isUntouched = true;
      const touch = () => {
        isUntouched = false;
        retry.progress();
      };
      try {
        // A source that can be read once is not opened before there is someone to read it.
        if (!canReopen(source)) await this.#channel.waitReady(this.#retry.giveUpAfterMs, signal);
        const pieces = toPieces(observed(openSource(source), touch));
        const { bytesWritten } = await this.#channel.upload(
          fileSystemServiceDefinition.writeFile,
          toWriteRequests(path, mode, pieces),
          { signal },
        );
        return Number(bytesWritten);
      } catch (error) {
        if (!isUntouched && !canReopen(source)) throw toUploadError(error, path);
        await retry.pauseAfter(error, signal);
      }
    }
  }

  async *#chunks(path: string, signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
    const retry = new Retry(this.#retry);
    const request = create(ReadFileRequestSchema, { path });
    const delivered = new Delivered(path);
    for (;;) {
      try {
        delivered.restart();
        const messages = this.#channel.stream(fileSystemServiceDefinition.readFile, request, {
          signal,
        });
        for await (const { data } of messages) {
          const fresh = delivered.accept(data);
          if (fresh.length === 0) continue;
          retry.progress();
          yield fresh;
        }
        delivered.finish();
        return;
      } catch (error) {
        await retry.pauseAfter(error, signal);
      }
    }
  }
}

/** What a reader has got so far, over all attempts, and how far the present attempt has repeated it. */
class Delivered {
  readonly #path: string;
  #bytes = 0;
  #hash: Hash = createHash("sha256");
  #repeatedBytes = 0;
  #repeatedHash: Hash = createHash("sha256");

  constructor(path: string) {
    this.#path = path;
  }

  /** A new attempt begins at the start of the file. */
  restart(): void {
    this.#repeatedBytes = 0;
    this.#repeatedHash = createHash("sha256");
  }

  /** Takes the next bytes of the attempt; returns those that were not delivered before. */
  accept(data: Uint8Array): Uint8Array {
    const oldBytes = Math.min(data.length, this.#bytes - this.#repeatedBytes);
    if (oldBytes > 0) {
      this.#repeatedHash.update(data.subarray(0, oldBytes));
      this.#repeatedBytes += oldBytes;
      if (this.#repeatedBytes === this.#bytes) this.#compare();
    }
    const fresh = data.subarray(oldBytes);
    if (fresh.length > 0) {
      this.#hash.update(fresh);
      this.#bytes += fresh.length;
      this.#repeatedBytes = this.#bytes;
    }
    return fresh;
  }

  /** The attempt has reached the end of the file. */
  finish(): void {
    if (this.#repeatedBytes < this.#bytes) throw this.#changed();
  }

  #compare(): void {
    const before = this.#hash.copy().digest();
    if (!this.#repeatedHash.digest().equals(before)) throw this.#changed();
  }

  #changed(): AteenvError {
    return new AteenvError(
      "interrupted",
      `the connection was lost after ${this.#bytes} bytes of ${JSON.stringify(this.#path)}, ` +
        "and the file has changed since: read it again",
    );
  }
}

async function* observed(
  chunks: AsyncIterable<Uint8Array>,
  onChunk: () => void,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    onChunk();
    yield chunk;
  }
}

function toUploadError(error: unknown, path: string): unknown {
  if (!(error instanceof AteenvError) || error.kind !== "unavailable" || isFromAgent(error)) {
    return error;
  }
  return new AteenvError(
    "outcome-unknown",
    `the connection was lost while ${
      JSON.stringify(path)
    } was written: it holds either its old or ` +
      `all of its new content. The source can be read only once; pass a function that opens it to ` +
      `have the upload repeated (${error.message})`,
    { cause: error },
  );
}
