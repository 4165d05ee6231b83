// Bytes read from disk, shared by readers that want the same: a crowd that replays costs one read.
// Must not keep anything alive: what no reader holds any more is free to go.

/** Places that are remembered; readers spread over more of them read on their own. */
const MAX_PLACES = 16;

interface Place {
  readonly end: number;
  /** While it is being read. */
  readonly reading?: Promise<Uint8Array>;
  /** As long as some reader holds it. */
  readonly read?: WeakRef<Uint8Array>;
}

/** Recent reads of one stream, by their offset. */
export class SharedReads {
  readonly #places = new Map<number, Place>();

  /** The bytes from `start` to `end`: those that another reader got or is getting, else what `read` brings. */
  get(
    start: number,
    end: number,
    read: () => Promise<Uint8Array>,
  ): Uint8Array | Promise<Uint8Array> {
    const place = this.#places.get(start);
    if (place?.end === end) {
      const shared = place.reading ?? place.read?.deref();
      if (shared !== undefined) return shared;
    }
    const reading = this.#run(start, end, read);
    this.#remember(start, { end, reading });
    return reading;
  }

  async #run(start: number, end: number, read: () => Promise<Uint8Array>): Promise<Uint8Array> {
    try {
      const data = await read();
      this.#remember(start, { end, read: new WeakRef(data) });
      return data;
    } catch (error) {
      this.#places.delete(start);
      throw error;
    }
  }

  #remember(start: number, place: Place): void {
    this.#places.delete(start);
    this.#places.set(start, place);
    if (this.#places.size <= MAX_PLACES) return;
    for (const oldest of this.#places.keys()) {
      this.#places.delete(oldest);
      return;
    }
  }
}
