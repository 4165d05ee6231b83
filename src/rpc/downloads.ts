// How many files are read at a time: each costs a descriptor, and memory for as long as its client stalls.
// Must not know files or gRPC.
import type { Clock } from "../clock.ts";
import { AgentError } from "../errors.ts";

/** A download that nobody takes pieces of holds up to 5 MiB: a few of them read ahead, others unsent. */
const MAX_DOWNLOADS = 64;
/** A client that has taken nothing for so long makes room for one that wants to. */
const STALLED_MS = 5_000;

/** One download under way. */
export interface Download extends Disposable {
  /** To be called for each piece that the client has room for. */
  moved(): void;
}

interface OpenDownload {
  movedMs: number;
  readonly end: (reason: AgentError) => void;
}

/** See the head of this file. */
export class Downloads {
  readonly #clock: Clock;
  /** The one that has stood still for longest first. */
  readonly #open = new Set<OpenDownload>();
  readonly #waiting = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Lets one more in, once there is room; `end` is called where it has to make room for another.
   * @throws the reason of `signal`
   */
  async enter(signal: AbortSignal, end: (reason: AgentError) => void): Promise<Download> {
    signal.throwIfAborted();
    while (this.#open.size >= MAX_DOWNLOADS) {
      await this.#waitRoom(signal);
      signal.throwIfAborted();
      this.#endStalled();
    }
    const download: OpenDownload = { movedMs: this.#clock.nowMs(), end };
    this.#open.add(download);
    return {
      moved: () => {
        if (!this.#open.delete(download)) return;
        download.movedMs = this.#clock.nowMs();
        this.#open.add(download);
      },
      [Symbol.dispose]: () => {
        this.#open.delete(download);
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
    if (this.#open.size < MAX_DOWNLOADS || stalest === undefined) return;
    if (this.#clock.nowMs() - stalest.movedMs < STALLED_MS) return;
    this.#open.delete(stalest);
    stalest.end(
      new AgentError("resource-exhausted", "a stalled download has to make room for others"),
    );
  }

  #wakeOne(): void {
    const [first] = this.#waiting;
    if (first === undefined) return;
    this.#waiting.delete(first);
    first();
  }
}
