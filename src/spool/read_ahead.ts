// How many readers may hold a piece beyond the one that their consumer has.
// A leaf: imports nothing of ours.

/** Slots for pieces read ahead. Who gets none reads when asked, and is merely slower. */
export class ReadAheadSlots {
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  /** Takes a slot, if there is one. */
  take(): boolean {
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  /** Gives a slot back. */
  give(): void {
    this.#free++;
  }
}
