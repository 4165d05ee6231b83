// How a process goes for good: dropped by retention, evicted by the spool limit, discarded unasked for.
// Must not decide which one.
import type { SpoolStore } from "../spool/mod.ts";
import type { BackgroundWork } from "./background_work.ts";
import type { ProcessKiller } from "./kill/process_killer.ts";
import type { ProcessEntry } from "./process_entry.ts";
import type { ProcessRegister } from "./process_register.ts";
import type { RecordStore } from "./record_store.ts";
import type { UnaskedKills } from "./unasked_kills.ts";

/** Options of {@linkcode Removal}. */
export interface RemovalOptions {
  readonly register: ProcessRegister;
  readonly records: RecordStore;
  readonly spools: SpoolStore;
  readonly killer: ProcessKiller;
  readonly unasked: UnaskedKills;
  readonly background: BackgroundWork;
}

/** Each way ends with a process that nobody can name any more, and no file of it. */
export class Removal {
  readonly #options: RemovalOptions;

  constructor(options: RemovalOptions) {
    this.#options = options;
  }

  /** Forgets a finished process and deletes what is kept of it, in the background. */
  drop(entry: ProcessEntry): void {
    this.#options.background.run(() => this.#drop(entry));
  }

  /** Kills a process and forgets it, in the background. It is NOT_FOUND at once. */
  discard(entry: ProcessEntry): void {
    this.#options.background.run(() => this.#discard(entry));
  }

  /** The spool limit has taken the output of a finished process; the spool deletes its own files. */
  async evict(processId: string): Promise<void> {
    const { register, records, killer } = this.#options;
    const entry = register.find(processId);
    if (entry === undefined) return;
    register.forget(entry);
    await records.remove(processId);
    killer.release(processId);
  }

  async #drop(entry: ProcessEntry): Promise<void> {
    const { register, records, killer } = this.#options;
    register.forget(entry);
    await entry.spool.remove();
    await records.remove(entry.processId);
    killer.release(entry.processId);
  }

  async #discard(entry: ProcessEntry): Promise<void> {
    this.#options.register.forget(entry);
    try {
      await this.#options.unasked.kill(entry);
      if (entry.leader !== undefined) await entry.final;
    } finally {
      await this.#drop(entry);
    }
  }
}
