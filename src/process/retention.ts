// Which finished processes are kept, and for how long.
// Must not know what a record is; dropping one is the owner's to do.
import type { Clock, Timer } from "../clock.ts";

/** Something that finished at a moment on the clock's scale. */
export interface Finished {
  readonly finalAtMs: number | undefined;
}

/** Options of {@linkcode Retention}. */
export interface RetentionOptions<T> {
  readonly clock: Clock;
  /** Newest ones that are kept. */
  readonly maxCount: number;
  readonly maxAgeMs: number;
  /** Called for each one that has to go, oldest first. */
  readonly drop: (item: T) => void;
}

/** Finished ones in the order of their finish, bounded by number and by age. */
export class Retention<T extends Finished> implements Disposable {
  readonly #options: RetentionOptions<T>;
  /** Insertion order is the order of finish, and so of age. */
  readonly #items = new Set<T>();
  #timer: Timer | undefined;

  constructor(options: RetentionOptions<T>) {
    this.#options = options;
  }

  get count(): number {
    return this.#items.size;
  }

  /** Adds the one that has just finished. */
  add(item: T): void {
    this.#items.add(item);
    this.#dropExcess();
    this.#arm();
  }

  /** Forgets one that went for another reason. */
  delete(item: T): void {
    this.#items.delete(item);
  }

  /** Nothing is dropped any more. */
  [Symbol.dispose](): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#items.clear();
  }

  #dropExcess(): void {
    const { maxCount, maxAgeMs, clock, drop } = this.#options;
    const oldestKept = clock.nowMs() - maxAgeMs;
    for (const item of this.#items) {
      if (this.#items.size <= maxCount && item.finalAtMs! > oldestKept) return;
      this.#items.delete(item);
      drop(item);
    }
  }

  /** One timer, for the oldest there is when it is set: what comes later is due later. */
  #arm(): void {
    const [oldest] = this.#items;
    if (this.#timer !== undefined || oldest === undefined) return;
    const { clock, maxAgeMs } = this.#options;
    const dueMs = Math.max(1, oldest.finalAtMs! + maxAgeMs - clock.nowMs());
    this.#timer = clock.setTimer(dueMs, () => {
      this.#timer = undefined;
      this.#dropExcess();
      this.#arm();
    });
  }
}
