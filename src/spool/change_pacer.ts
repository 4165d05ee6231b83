// When waiting readers hear of new bytes: at once after a rest, together in a burst.
// Must not know the bytes, nor who waits.
import type { Clock, Timer } from "../clock.ts";
import type { ChangeSignal } from "./change_signal.ts";

/**
 * A child that is read as fast as it writes is woken by the kernel for each free page of its pipe: half of
 * its output comes in pieces of 4 KiB, and a message for each of them costs more than what it carries.
 * So long a burst waits for more, at most. Far below what a person or a network would notice.
 */
const BURST_MS = 1;
/** What is worth a message of its own: no need to wait for more. */
const ENOUGH_BYTES = 256 * 1024;

/** Paces the notices of one stream. */
export class ChangePacer {
  readonly #change: ChangeSignal;
  readonly #clock: Clock;
  #untoldBytes = 0;
  #toldMs = -Infinity;
  #timer: Timer | undefined;

  constructor(change: ChangeSignal, clock: Clock) {
    this.#change = change;
    this.#clock = clock;
  }

  /** So many bytes more can be read. */
  added(bytes: number): void {
    this.#untoldBytes += bytes;
    const isBurst = this.#clock.nowMs() - this.#toldMs < BURST_MS;
    // Where nobody waits, telling costs nothing and wakes nobody.
    if (!isBurst || this.#untoldBytes >= ENOUGH_BYTES || this.#change.waiting === 0) this.tell();
    else this.#timer ??= this.#clock.setTimer(BURST_MS, () => this.tell());
  }

  /** Tells all waiting readers now. */
  tell(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#untoldBytes = 0;
    this.#toldMs = this.#clock.nowMs();
    this.#change.notify();
  }
}
