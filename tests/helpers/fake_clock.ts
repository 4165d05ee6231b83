// Time that moves only when a test says so.
import type { Clock } from "../../src/clock.ts";

interface FakeTimer {
  readonly dueMs: number;
  readonly callback: () => void;
}

/** A clock that stands still; its wall clock may jump on its own. */
export class FakeClock implements Clock {
  #nowMs = 1_000_000;
  #wallMs = Date.UTC(2030, 0, 1);
  readonly #timers = new Set<FakeTimer>();

  nowMs(): number {
    return this.#nowMs;
  }

  wallTime(): Date {
    return new Date(this.#wallMs);
  }

  setTimer(delayMs: number, callback: () => void) {
    const timer = { dueMs: this.#nowMs + delayMs, callback };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  /** Timers that wait. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Lets time pass: timers run in the order in which they are due. */
  advance(byMs: number): void {
    const endMs = this.#nowMs + byMs;
    while (true) {
      const due = [...this.#timers].filter(({ dueMs }) => dueMs <= endMs)
        .sort((a, b) => a.dueMs - b.dueMs)[0];
      if (due === undefined) break;
      this.#wallMs += due.dueMs - this.#nowMs;
      this.#nowMs = due.dueMs;
      this.#timers.delete(due);
      due.callback();
    }
    this.#wallMs += endMs - this.#nowMs;
    this.#nowMs = endMs;
  }

  /** What an administrator or a restored snapshot does to the wall clock. */
  jumpWall(byMs: number): void {
    this.#wallMs += byMs;
  }
}
