// The way of one process onto the stage: directory, spawn, spool, pumps, supervision, final record.
// Must not know the table, nor how a tree is killed.
import type { Clock } from "../clock.ts";
import { fromOsError } from "../errors.ts";
import { errorFields, type Logger } from "../log.ts";
import type { ProcessSpool, SpoolStore } from "../spool/mod.ts";
import { OutputPump } from "./output_pump.ts";
import { Leader, ProcessEntry, superviseProcess } from "./process_entry.ts";
import { type ExitReport, finishedInfo, type ProcessInfo, startedInfo } from "./process_info.ts";
import type { RecordStore } from "./record_store.ts";
import {
  type CannotRun,
  isCannotRun,
  type SpawnedChild,
  type Spawner,
  type SpawnRequest,
} from "./spawner.ts";

/** Options of {@linkcode ProcessLauncher}. */
export interface ProcessLauncherOptions {
  readonly records: RecordStore;
  readonly spools: SpoolStore;
  readonly spawner: Spawner;
  /** Runs a spawn so that a kill will reach what it spawns. */
  readonly within: <T>(processId: string, spawn: () => Promise<T>) => Promise<T>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly drainWindowMs: number;
  /** The next number in the order of finishes. */
  readonly nextOrder: () => number;
  /** Told at the moment at which a process that ran has become final. */
  readonly onFinal: (entry: ProcessEntry) => void;
  /** The output of the process went for want of space. */
  readonly onEvict: (processId: string) => void | Promise<void>;
}

/** Starts processes and sees them to their end. */
export class ProcessLauncher {
  readonly #options: ProcessLauncherOptions;
  readonly #pumps = new Set<OutputPump>();

  constructor(options: ProcessLauncherOptions) {
    this.#options = options;
  }

  /**
   * Starts a process. What throws leaves nothing behind.
   * @returns a running entry, or a final one for a program that cannot be run
   * @throws AgentError
   */
  async launch(processId: string, request: SpawnRequest): Promise<ProcessEntry> {
    const { records, spools, spawner, within, clock, onEvict } = this.#options;
    try {
      // Before the spawn: an agent that dies in between finds the id to kill by.
      const directory = records.create(processId);
      const startedAt = clock.wallTime();
      const outcome = await within(processId, () => spawner.spawn(request));
      const spool = spools.create(directory, { onEvict: () => onEvict(processId) });
      const info = startedInfo(processId, startedAt);
      if (isCannotRun(outcome)) return await this.#concludeUnrun(info, spool, outcome);
      return this.#attend(info, spool, outcome, request);
    } catch (error) {
      records.removeUnstarted(processId);
      throw fromOsError(error, "cannot store a process");
    }
  }

  /** Gives up the pipes that are still held by somebody. */
  async stopPumps(): Promise<void> {
    await Promise.all([...this.#pumps].map((pump) => pump.stop()));
  }

  #attend(
    info: ProcessInfo,
    spool: ProcessSpool,
    child: SpawnedChild,
    request: SpawnRequest,
  ): ProcessEntry {
    const { clock, log, drainWindowMs } = this.#options;
    const { processId } = info;
    const leader = new Leader(child, clock, log);
    const entry = new ProcessEntry(info, spool, leader);
    const pumps = [
      new OutputPump(child.stdout, spool.stdout),
      new OutputPump(child.stderr, spool.stderr),
    ];
    for (const pump of pumps) this.#keep(pump, processId);
    log.info("process started", { processId, pid: child.pid, argc: request.command.length });
    const startedMs = clock.nowMs();
    superviseProcess(entry, leader, { clock, drainWindowMs, pumps }).then(
      ({ info, exit }) => {
        this.#conclude(entry, info, exit);
        log.info("process finished", {
          processId,
          code: exit.code,
          signal: exit.signal,
          durationMs: Math.round((leader.exitedAtMs ?? startedMs) - startedMs),
          stdoutBytes: spool.stdout.endOffset,
          stderrBytes: spool.stderr.endOffset,
        });
      },
    );
    return entry;
  }

  #keep(pump: OutputPump, processId: string): void {
    this.#pumps.add(pump);
    pump.ended.then(() => {
      this.#pumps.delete(pump);
      if (pump.error === undefined) return;
      this.#options.log.error("a pipe of a process could not be read to its end", {
        processId,
        ...errorFields(pump.error),
      });
    });
  }

  /** Writes the final state down, then shows it. */
  #conclude(entry: ProcessEntry, info: ProcessInfo, exit: ExitReport): void {
    const { records, nextOrder, clock, log, onFinal } = this.#options;
    const order = nextOrder();
    if (!entry.forgotten) {
      try {
        const { processId } = entry;
        records.writeFinished(processId, { exit, finishedAt: info.finishedAt!, order });
      } catch (error) {
        // Served from memory as long as this agent lives.
        log.error("final state cannot be stored", {
          processId: entry.processId,
          ...errorFields(error),
        });
      }
    }
    entry.publish(info, order, clock.nowMs());
    onFinal(entry);
  }

  async #concludeUnrun(
    info: ProcessInfo,
    spool: ProcessSpool,
    { exitCode, reason }: CannotRun,
  ): Promise<ProcessEntry> {
    const { records, nextOrder, clock, log } = this.#options;
    const { processId, startedAt } = info;
    try {
      records.writeStarted({ processId, startedAt });
      const exit = { code: exitCode, signal: null };
      const finishedAt = clock.wallTime();
      const order = nextOrder();
      spool.stderr.append(new TextEncoder().encode(`${reason}\n`));
      spool.stdout.end();
      spool.stderr.end();
      await spool.flush();
      records.writeFinished(processId, { exit, finishedAt, order });
      const entry = new ProcessEntry(info, spool);
      entry.publish(finishedInfo(info, exit, finishedAt), order, clock.nowMs());
      log.info("process could not be run", { processId, code: exitCode });
      return entry;
    } catch (error) {
      await spool.remove();
      throw error;
    }
  }
}
