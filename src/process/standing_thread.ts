// One thread of the runtime's pool for blocking work that never goes away.
// Must not be needed for anything but its being there.

import type { Clock } from "../clock.ts";
import { Deadline } from "./deadline.ts";

/** Between two attempts to get an operation done. */
const NUDGE_PAUSE_MS = 200;

/**
 * Keeps a thread for blocking work alive, from `start` to its disposal.
 *
 * The runtime ends such threads after ten idle seconds. Its next file operation starts one, and when the
 * kernel has no process left to give (a fork bomb under a limit), the whole agent aborts. With one
 * thread in the pool, even a busy one, operations wait instead, until there are processes again; a kill
 * sees to that, and needs none. The thread is kept busy by opening a FIFO that nobody writes to (a file
 * lock will not do: the runtime does not count that thread).
 */
export class StandingThread implements AsyncDisposable {
  readonly #clock: Clock;
  #path: string | undefined;
  #opening: Promise<void> | undefined;
  #nudging: Promise<void> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param path of a FIFO that nobody else opens; where there is none, there is no thread either */
  start(path: string): void {
    this.#path = path;
    this.#opening = Deno.open(path).then((file) => file.close(), () => {
      this.#path = undefined;
    });
  }

  /**
   * Gets operations going again that wait because no thread could be started: only the next operation
   * starts one. To be called when processes have run out, or may just have become available.
   */
  nudge(): void {
    this.#nudging ??= this.#nudge().finally(() => this.#nudging = undefined);
  }

  /** Nothing tells that the kernel has processes again: it is tried until one operation is done. */
  async #nudge(): Promise<void> {
    let isDone = false;
    while (!isDone && this.#path !== undefined) {
      const pause = new Deadline(this.#clock, NUDGE_PAUSE_MS);
      const operation = Deno.lstat(this.#path).then(() => true, () => true);
      isDone = await Promise.race([operation, pause.passed]) ?? false;
      pause.cancel();
    }
  }

  /** Lets the thread go. */
  async [Symbol.asyncDispose](): Promise<void> {
    // Open for both never waits on a FIFO, and is the writer that the thread waits for.
    using _writer = this.#path === undefined
      ? undefined
      : Deno.openSync(this.#path, { read: true, write: true });
    this.#path = undefined;
    await this.#opening;
    await this.#nudging;
  }
}
