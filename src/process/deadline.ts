// A point in time that work can be measured against, waited for, and called off.
// Must not use any timer but the Clock's.
import type { Clock, Timer } from "../clock.ts";

/** Passes after a while, or at once when its parent signal is aborted. Cancel it when done. */
export class Deadline {
  /** Resolves when it passes; never if it is cancelled before. */
  readonly passed: Promise<undefined>;
  readonly #controller = new AbortController();
  readonly #timer: Timer;
  readonly #parent: AbortSignal | undefined;
  readonly #pass: () => void;

  constructor(clock: Clock, delayMs: number, parent?: AbortSignal) {
    const passed = Promise.withResolvers<undefined>();
    this.passed = passed.promise;
    this.#pass = () => {
      this.#controller.abort();
      passed.resolve(undefined);
    };
    this.#timer = clock.setTimer(delayMs, this.#pass);
    this.#parent = parent;
    if (parent?.aborted) this.#pass();
    else parent?.addEventListener("abort", this.#pass);
  }

  /** Whether it has passed. */
  get over(): boolean {
    return this.#controller.signal.aborted;
  }

  /** Aborted when it passes. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Lets go of the timer and the parent. */
  cancel(): void {
    this.#timer.cancel();
    this.#parent?.removeEventListener("abort", this.#pass);
  }
}
