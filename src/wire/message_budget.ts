// How much memory the messages that nobody has taken yet may cost, all calls of a server together.
// Pure; must not import gRPC or HTTP/2.

/** A holder with more than this pays for the excess itself; below it, whoever holds most does. */
const MODEST_BYTES = 1024 * 1024;

/** See the head of this file. Holders are compared by identity. */
export class MessageBudget<Holder> {
  readonly #maxBytes: number;
  readonly #held = new Map<Holder, number>();
  #total = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of all holders. */
  get total(): number {
    return this.#total;
  }

  /**
   * `holder` holds `bytes` now. Where that is too much for all together, the holder that has to go: its
   * bytes do not count any more.
   */
  hold(holder: Holder, bytes: number): Holder | undefined {
    const before = this.#held.get(holder) ?? 0;
    this.#total += bytes - before;
    if (bytes === 0) this.#held.delete(holder);
    else this.#held.set(holder, bytes);
    // What holds less than before is not what makes it too much.
    if (this.#total <= this.#maxBytes || bytes <= before) return undefined;
    const leaving = bytes > MODEST_BYTES ? holder : this.#largest();
    this.release(leaving);
    return leaving;
  }

  /** `holder` is gone. */
  release(holder: Holder): void {
    this.#total -= this.#held.get(holder) ?? 0;
    this.#held.delete(holder);
  }

  /** The newest of those that hold most. There is one. */
  #largest(): Holder {
    let largest: [Holder, number] | undefined;
    for (const entry of this.#held) {
      if (largest === undefined || entry[1] >= largest[1]) largest = entry;
    }
    return largest![0];
  }
}
