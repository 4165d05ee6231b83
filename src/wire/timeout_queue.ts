// One timer for many waits of the same length: what ends in time costs no timer of its own.
// Pure but for the clock; must not know what waits.
import type { Clock, Timer } from "../clock.ts";

/** Items that time out in the order in which they came. */
export class TimeoutQueue<Item> {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #onTimeout: (item: Item) => void;
  /** When each is due, the oldest first. */
  readonly #dueMs = new Map<Item, number>();
  #timer: Timer | undefined;

  /** `onTimeout` is called once for what was added and stayed for `timeoutMs` milliseconds. */
  constructor(clock: Clock, timeoutMs: number, onTimeout: (item: Item) => void) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#onTimeout = onTimeout;
  }

  /** `item`, which is not in the queue, waits from now on. */
  add(item: Item): void {
    this.#dueMs.set(item, this.#clock.nowMs() + this.#timeoutMs);
    if (this.#timer === undefined) this.#wait(this.#timeoutMs);
  }

  /** `item`, if it is in the queue, does not wait any more. The timer is left alone: the next one will need it. */
  delete(item: Item): void {
    this.#dueMs.delete(item);
  }

  /** Nothing waits any more, and no timer is left. */
  clear(): void {
    this.#dueMs.clear();
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #wait(delayMs: number): void {
    this.#timer = this.#clock.setTimer(delayMs, () => this.#expire());
  }

  #expire(): void {
    const now = this.#clock.nowMs();
    try {
      for (const [item, dueMs] of this.#dueMs) {
        if (dueMs > now) break;
        this.#dueMs.delete(item);
        this.#onTimeout(item);
      }
    } finally {
      // Also where `onTimeout` threw: the others still wait.
      this.#timer = undefined;
      const [nextMs] = this.#dueMs.values();
      if (nextMs !== undefined) this.#wait(Math.max(0, nextMs - now));
    }
  }
}
