// Time as the agent sees it: monotonic for every duration, wall clock only for timestamps.
// A leaf: imports nothing of ours.

/** A pending callback; cancelling it twice, or after it ran, does nothing. */
export interface Timer {
  cancel(): void;
}

/** The port through which all rooms see time; tests pass a fake one. */
export interface Clock {
  /** Milliseconds on a monotonic scale of arbitrary origin. A jump of the wall clock never shows. */
  nowMs(): number;
  /** The wall clock, for timestamps shown to people only. */
  wallTime(): Date;
  /** Runs `callback` once, `delayMs` milliseconds from now; does not keep the process alive. */
  setTimer(delayMs: number, callback: () => void): Timer;
}

/** setTimeout overflows to "at once" beyond 2^31-1 ms; longer delays are taken in steps. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** The real clock: CLOCK_MONOTONIC through `performance.now()`. */
export const systemClock: Clock = {
  nowMs: () => performance.now(),
  wallTime: () => new Date(),
  setTimer(delayMs, callback) {
    const deadlineMs = performance.now() + delayMs;
    let handle: ReturnType<typeof setTimeout>;
    const arm = () => {
      const leftMs = deadlineMs - performance.now();
      handle = leftMs > MAX_TIMEOUT_MS
        ? setTimeout(arm, MAX_TIMEOUT_MS)
        : setTimeout(callback, Math.max(0, leftMs));
      handle.unref();
    };
    arm();
    return { cancel: () => clearTimeout(handle) };
  },
};
