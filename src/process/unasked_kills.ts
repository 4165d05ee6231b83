// Kills that no client asked for: of what runs too long, of what nobody knows of.
// Must not know how a tree is killed, nor records.
import type { Clock, Timer } from "../clock.ts";
import { AgentError } from "../errors.ts";
import { errorFields, type Logger } from "../log.ts";
import type { BackgroundWork } from "./background_work.ts";
import type { ProcessKiller } from "./kill/process_killer.ts";
import type { ProcessEntry } from "./process_entry.ts";

/** Options of {@linkcode UnaskedKills}. */
export interface UnaskedKillsOptions {
  readonly killer: ProcessKiller;
  readonly background: BackgroundWork;
  readonly clock: Clock;
  readonly log: Logger;
  /** 0 = no limit. */
  readonly processTimeoutMs: number;
}

/** Kills that nobody would repeat where they are overdue. */
export class UnaskedKills implements Disposable {
  readonly #options: UnaskedKillsOptions;
  readonly #timers = new Map<ProcessEntry, Timer>();
  #disposed = false;

  constructor(options: UnaskedKillsOptions) {
    this.#options = options;
  }

  /** Kills a process once it has run for the process timeout. */
  limitTime(entry: ProcessEntry): void {
    const { background, clock, log, processTimeoutMs } = this.#options;
    if (processTimeoutMs === 0 || this.#disposed) return;
    const { processId } = entry;
    const timer = clock.setTimer(processTimeoutMs, () => {
      log.warn("process killed: it ran longer than the process timeout", {
        processId,
        processTimeoutMs,
      });
      background.run(() => this.kill(entry));
    });
    this.#timers.set(entry, timer);
  }

  /** The process has ended by itself, or was killed. */
  noteFinal(entry: ProcessEntry): void {
    this.#timers.get(entry)?.cancel();
    this.#timers.delete(entry);
  }

  /** Kills a process, however long that takes. @throws AgentError when the table is shut down meanwhile */
  async kill(entry: ProcessEntry): Promise<void> {
    const { killer, log } = this.#options;
    for (;;) {
      try {
        return await killer.kill(entry, 0);
      } catch (error) {
        const isOverdue = error instanceof AgentError && error.kind === "deadline-exceeded";
        if (!isOverdue || this.#disposed) throw error;
        log.warn("a kill is overdue and goes on", errorFields(error));
      }
    }
  }

  /** No kill begins any more by itself, and none is repeated. */
  [Symbol.dispose](): void {
    this.#disposed = true;
    for (const timer of this.#timers.values()) timer.cancel();
    this.#timers.clear();
  }
}
