// How many files are read, or written, at a time: each costs descriptors and memory while its client stalls.
// Must not know files or gRPC.
import type { Clock } from "../clock.ts";
import { AgentError } from "../errors.ts";

/**
 * A download that nobody takes pieces of holds up to 5 MiB, read ahead and unsent; an upload that stops
 * half-way two descriptors, of which there are 1,024 in many containers.
 */
const MAX_TRANSFERS = 64;
/** Where nothing has moved for so long, the transfer makes room for one that waits. */
const STALLED_MS = 5_000;

/** One transfer under way. */
export interface Transfer extends Disposable {
  /** To be called for each piece that the client takes or sends. */
  moved(): void;
}

interface OpenTransfer {
  movedMs: number;
  readonly end: (reason: AgentError) => void;
}

/** See the head of this file. */
export class Transfers {
  readonly #clock: Clock;
  /** The one that has stood still for longest first. */
  readonly #open = new Set<OpenTransfer>();
  readonly #waiting = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Lets one more in, once there is room; `end` is called where it has to make room for another.
   * @throws the reason of `signal`
   */
  async enter(signal: AbortSignal, end: (reason: AgentError) => void): Promise<Transfer> {
    signal.throwIfAborted();
    while (this.#open.size >= MAX_TRANSFERS) {
      await this.#waitRoom(signal);
      signal.throwIfAborted();
      this.#endStalled();
    }
    const transfer: OpenTransfer = { movedMs: this.#clock.nowMs(), end };
    this.#open.add(transfer);
    return {
      moved: () => {
        if (!this.#open.delete(transfer)) return;
        transfer.movedMs = this.#clock.nowMs();
        this.#open.add(transfer);
      },
      [Symbol.dispose]: () => {
        this.#open.delete(transfer);
        this.#wakeOne();
      },
    };
  }

  /** Until one has left, or the one that has stood still for longest has done so for too long. */
  async #waitRoom(signal: AbortSignal): Promise<void> {
    const [stalest] = this.#open;
    const stalledMs = stalest === undefined ? 0 : this.#clock.nowMs() - stalest.movedMs;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = this.#clock.setTimer(Math.max(0, STALLED_MS - stalledMs), resolve);
    this.#waiting.add(resolve);
    const onAbort = () => resolve();
    signal.addEventListener("abort", onAbort);
    await promise;
    signal.removeEventListener("abort", onAbort);
    timer.cancel();
    this.#waiting.delete(resolve);
  }

  #endStalled(): void {
    const [stalest] = this.#open;
    if (this.#open.size < MAX_TRANSFERS || stalest === undefined) return;
    if (this.#clock.nowMs() - stalest.movedMs < STALLED_MS) return;
    this.#open.delete(stalest);
    stalest.end(
      new AgentError("resource-exhausted", "a stalled transfer has to make room for others"),
    );
  }

  #wakeOne(): void {
    const [first] = this.#waiting;
    if (first === undefined) return;
    this.#waiting.delete(first);
    first();
  }
}
