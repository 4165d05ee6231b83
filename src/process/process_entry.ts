// One process of the table: its state, its output, its leader; and the way from running to final.
// Must not know the table, nor how a tree is killed.
import type { Clock } from "../clock.ts";
import { errorFields, type Logger } from "../log.ts";
import type { ProcessSpool } from "../spool/mod.ts";
import { Deadline } from "./deadline.ts";
import type { KillLeader, KillTarget } from "./kill/hunt.ts";
import type { OutputPump } from "./output_pump.ts";
import { type ExitReport, finishedInfo, KILLED_EXIT, type ProcessInfo } from "./process_info.ts";
import type { SpawnedChild } from "./spawner.ts";

/** How long finality may wait for output after the leader's exit. */
export const DRAIN_WINDOW_MS = 500;

/** The leader, as a kill and the table see it. */
export class Leader implements KillLeader {
  readonly pid: number;
  /** Resolves when the kernel has reported its exit; never rejects. */
  readonly exited: Promise<ExitReport>;
  readonly #child: SpawnedChild;
  #exitedAtMs: number | undefined;

  constructor(child: SpawnedChild, clock: Clock, log: Logger) {
    this.pid = child.pid;
    this.#child = child;
    const note = (exit: ExitReport) => {
      this.#exitedAtMs = clock.nowMs();
      return exit;
    };
    this.exited = child.exit.then(note, (error) => {
      log.error("exit of a process could not be read", { pid: child.pid, ...errorFields(error) });
      return note(KILLED_EXIT);
    });
  }

  get exitedAtMs(): number | undefined {
    return this.#exitedAtMs;
  }

  signal(signal: "SIGTERM" | "SIGKILL"): void {
    this.#child.signal(signal);
  }
}

/** A process from before its start is answered until its record is dropped. */
export class ProcessEntry implements KillTarget {
  readonly spool: ProcessSpool;
  /** Undefined for a program that could not be run, and for processes of an agent that is gone. */
  readonly leader: Leader | undefined;
  /** Resolves when the status is final. */
  readonly final: Promise<void>;
  /** When it became final, on the clock's scale. */
  finalAtMs: number | undefined;
  /** Of no use to anyone: not in the table any more, or never was. */
  forgotten = false;
  #info: ProcessInfo;
  readonly #final = Promise.withResolvers<void>();

  constructor(info: ProcessInfo, spool: ProcessSpool, leader?: Leader) {
    this.#info = info;
    this.spool = spool;
    this.leader = leader;
    this.final = this.#final.promise;
  }

  get info(): ProcessInfo {
    return this.#info;
  }

  get processId(): string {
    return this.#info.processId;
  }

  /**
   * Makes `info` final, for all at once: who asks sees the status, who follows gets what there is now
   * and the end. `order` grows with each finish.
   */
  publish(info: ProcessInfo, order: number, nowMs: number): void {
    this.#info = info;
    this.finalAtMs = nowMs;
    this.spool.finish(order);
    this.#final.resolve();
  }
}

/** What {@linkcode superviseProcess} needs. */
export interface SuperviseOptions {
  readonly clock: Clock;
  readonly drainWindowMs: number;
  readonly pumps: readonly OutputPump[];
}

/**
 * Waits for the leader's exit, and then for its output: until the pipes are closed and all that came is
 * stored, but no longer than the drain window, for a descendant may hold the pipes for days.
 * @returns the final state, and what the kernel said
 */
export async function superviseProcess(
  entry: ProcessEntry,
  leader: Leader,
  { clock, drainWindowMs, pumps }: SuperviseOptions,
): Promise<{ info: ProcessInfo; exit: ExitReport }> {
  const exit = await leader.exited;
  const finishedAt = clock.wallTime();
  const window = new Deadline(clock, drainWindowMs);
  const drained = Promise.all(pumps.map(({ ended }) => ended)).then(() => entry.spool.flush());
  await Promise.race([drained, window.passed]);
  window.cancel();
  return { info: finishedInfo(entry.info, exit, finishedAt), exit };
}
