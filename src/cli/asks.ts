// What repeated signals mean: the first asks, a second insists, a third does not wait for anything.
// Must not know of Deno, nor of commands.
import { Interrupt } from "./stdio.ts";

/**
 * Ctrl-C reaches all programs of a terminal, and npm and `deno task`, of which the CLI is a child, pass
 * it on once more: within this time it is one and the same.
 */
export const SAME_ASK_MS = 1_000;

/** Counts signals, but those that come together only once. */
export class Asks {
  readonly #interrupt = new AbortController();
  readonly #insist = new AbortController();
  #lastMs = -Infinity;

  /** Aborted by the first, with an {@linkcode Interrupt}. */
  get interrupt(): AbortSignal {
    return this.#interrupt.signal;
  }

  /** Aborted by the second, alike. */
  get insist(): AbortSignal {
    return this.#insist.signal;
  }

  /** Takes a signal at a monotonic time in milliseconds; `exit` means at once, whatever is under way. */
  add(exitCode: number, nowMs: number): "exit" | undefined {
    const isSame = nowMs - this.#lastMs < SAME_ASK_MS;
    if (isSame) return undefined;
    this.#lastMs = nowMs;
    if (this.insist.aborted) return "exit";
    const controller = this.interrupt.aborted ? this.#insist : this.#interrupt;
    controller.abort(new Interrupt(exitCode));
    return undefined;
  }
}
