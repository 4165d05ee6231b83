// One bound for the memory that all live tails take together.
// A leaf: imports nothing of ours.

/** A stream that holds recent bytes only for the convenience of its readers. */
export interface TailHolder {
  /** Lets go of every byte that is on disk as well. */
  releaseRecent(): void;
}

/** Memory of all live tails, in bytes. */
export class TailBudget {
  readonly limit: number;
  /** Kept by the tails. */
  used = 0;
  readonly #holders = new Set<TailHolder>();

  constructor(limit: number) {
    this.limit = limit;
  }

  get exceeded(): boolean {
    return this.used > this.limit;
  }

  /** Notes that `holder` keeps recent bytes, and was the last to get some. */
  touch(holder: TailHolder): void {
    this.#holders.delete(holder);
    this.#holders.add(holder);
  }

  /** `holder` keeps nothing beyond what it must. */
  forget(holder: TailHolder): void {
    this.#holders.delete(holder);
  }

  /** When above the limit: recent bytes go, those first whose stream was silent the longest. */
  relieve(): void {
    for (const holder of this.#holders) {
      if (!this.exceeded) return;
      this.#holders.delete(holder);
      holder.releaseRecent();
    }
  }
}
