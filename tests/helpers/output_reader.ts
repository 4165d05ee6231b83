// A stream of output chunks, read step by step: up to some text, or to its end.
import type { ClientReadableStream } from "@grpc/grpc-js";
import type { OutputChunk, OutputSource } from "../../gen/ateenv/v1alpha/guest_pb.ts";

/** Joins byte arrays. */
export function concatBytes(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined;
}

/** Collects both streams. Reading is what asks the agent for more: who does not read, stalls. */
export class OutputReader implements Disposable {
  readonly call: ClientReadableStream<OutputChunk>;
  /** Size of the largest message on the wire, in bytes. */
  readonly largestMessage: () => number;
  readonly #stderr: OutputSource;
  readonly #pieces: { stdout: Uint8Array[]; stderr: Uint8Array[] } = { stdout: [], stderr: [] };
  #iterator: AsyncIterator<OutputChunk> | undefined;
  #isEnded = false;

  constructor(
    call: ClientReadableStream<OutputChunk>,
    largestMessage: () => number,
    stderr: OutputSource,
  ) {
    this.call = call;
    this.largestMessage = largestMessage;
    this.#stderr = stderr;
  }

  get stdout(): Uint8Array {
    return concatBytes(this.#pieces.stdout);
  }

  /** Bytes of stdout so far. */
  get stdoutBytes(): number {
    return this.#pieces.stdout.reduce((sum, { length }) => sum + length, 0);
  }

  get stderr(): Uint8Array {
    return concatBytes(this.#pieces.stderr);
  }

  /** stdout as UTF-8. */
  get text(): string {
    return new TextDecoder().decode(this.stdout);
  }

  /** Whether the agent has ended the stream with OK. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Takes one message; false at the end. Rejects with the status if it is not OK. */
  async next(): Promise<boolean> {
    // Made at the first read: before that nothing flows.
    this.#iterator ??= this.call[Symbol.asyncIterator]();
    const { done, value } = await this.#iterator.next();
    if (done) {
      this.#isEnded = true;
      return false;
    }
    (value.source === this.#stderr ? this.#pieces.stderr : this.#pieces.stdout).push(value.data);
    return true;
  }

  /** Reads until stdout holds `text`. */
  async until(text: string): Promise<void> {
    while (!this.text.includes(text)) {
      if (!await this.next()) {
        throw new Error(`the stream ended before ${JSON.stringify(text)} came: ${this.text}`);
      }
    }
  }

  /** Reads to the end. */
  async rest(): Promise<this> {
    while (await this.next());
    return this;
  }

  /** Cancels the call if it still runs. */
  [Symbol.dispose](): void {
    if (!this.#isEnded) this.call.cancel();
  }
}
