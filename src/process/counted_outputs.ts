// An output stream that says when it is over.
// Must not change what it passes on.
import type { OutputPiece } from "../spool/mod.ts";

type Result = IteratorResult<OutputPiece, undefined>;

/** Passes pieces on, and calls back once: at the end, at an error, or when it is given up. */
export class CountedOutputs implements AsyncIterableIterator<OutputPiece> {
  readonly #pieces: AsyncIterableIterator<OutputPiece>;
  #onOver: (() => void) | undefined;

  constructor(pieces: AsyncIterableIterator<OutputPiece>, onOver: () => void) {
    this.#pieces = pieces;
    this.#onOver = onOver;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<Result> {
    try {
      const result = await this.#pieces.next();
      if (result.done) this.#over();
      return result;
    } catch (error) {
      this.#over();
      throw error;
    }
  }

  async return(): Promise<Result> {
    this.#over();
    await this.#pieces.return?.();
    return { done: true, value: undefined };
  }

  #over(): void {
    this.#onOver?.();
    this.#onOver = undefined;
  }
}
