// Work that nobody waits for, but the end of the table.
// Must not know what the work is.
import { errorFields, type Logger } from "../log.ts";

/** Keeps work until it is done, and logs what went wrong with it: nobody else could be told. */
export class BackgroundWork {
  readonly #log: Logger;
  /** None of these rejects. */
  readonly #running = new Set<Promise<void>>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Begins `work` at once. */
  run(work: () => Promise<void>): void {
    const done = work().catch((error) => {
      this.#log.error("background work failed", errorFields(error));
    }).finally(() => this.#running.delete(done));
    this.#running.add(done);
  }

  /** Resolves when there is none left, what was begun meanwhile included. */
  async settle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}
