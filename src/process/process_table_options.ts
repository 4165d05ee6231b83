// What the table is given, asked for, and tells of itself.
// Must not hold any behaviour of the table.
import type { Clock } from "../clock.ts";
import type { Logger } from "../log.ts";
import type { Spawner } from "./spawner.ts";
import type { StateDir } from "./state_dir.ts";

/** What a client wants to read. Offsets are bytes of that stream, as the child wrote them. */
export interface OutputRequest {
  readonly processId: string;
  readonly stdoutOffset: number;
  readonly stderrOffset: number;
  readonly follow: boolean;
}

/** Numbers for whoever watches the agent. */
export interface ProcessMetrics {
  readonly running: number;
  readonly finished: number;
  readonly spoolBytes: number;
  /** Memory of the live tails, in bytes. */
  readonly tailBytes: number;
  /** Output streams that are open. */
  readonly streams: number;
}

/** Settings and surroundings of a {@linkcode ProcessTable}. */
export interface ProcessTableOptions {
  /** Open; stays the caller's to dispose, after the table. */
  readonly state: StateDir;
  /** Real path of the workspace: default cwd, and base of relative ones. */
  readonly workspace: string;
  readonly spawner: Spawner;
  readonly clock: Clock;
  readonly log: Logger;
  /** 0 = no limit. */
  readonly maxProcesses: number;
  /** 0 = no limit. */
  readonly processTimeoutMs: number;
  /** Time between SIGTERM and SIGKILL; 0 = SIGKILL at once. */
  readonly killGraceMs: number;
  /** A writable cgroup v2 directory: each process gets a cgroup below it. */
  readonly cgroup?: string | undefined;
  /** Newest bytes kept of each stream; 0 = all. */
  readonly outputLimitBytes: number;
  /** Bytes kept of all processes together; 0 = no limit. */
  readonly spoolLimitBytes: number;
  /** Finished processes that are kept. */
  readonly retain: number;
  readonly retainForMs: number;
  /** For tests. */
  readonly drainWindowMs?: number;
}

/** Most processes at once where no limit is set, for a limit of `nofile` descriptors. */
export function defaultMaxProcesses(nofile: number): number {
  // Five for each process: three of the runtime, two spool files. 200 for the rest of the agent.
  return Math.max(1, Math.min(256, Math.floor((nofile - 200) / 5)));
}
