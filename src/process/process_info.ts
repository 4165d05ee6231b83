// What is known of a process, and the two transitions there are: running, then final for good.
// Pure: must not import anything that touches the OS.

/** Final are all but `running`. `terminated` is any death by a signal, asked for or not. */
export type ProcessStatus = "running" | "completed" | "failed" | "terminated";

/** One moment of a process, immutable. */
export interface ProcessInfo {
  readonly processId: string;
  readonly status: ProcessStatus;
  /** 0 while running; 128 + signal when terminated. */
  readonly exitCode: number;
  /** Wall clock. */
  readonly startedAt: Date;
  /** Wall clock of the leader's exit; undefined while running. */
  readonly finishedAt: Date | undefined;
}

/** What the kernel reported of the leader's end. */
export interface ExitReport {
  /** 128 + signal for a death by a signal. */
  readonly code: number;
  /** Name of the signal, or its number where it has no name; null for a plain exit. */
  readonly signal: string | null;
}

/** Number of SIGKILL, and the code that a death by it gives. */
export const KILLED_EXIT: ExitReport = { code: 128 + 9, signal: "SIGKILL" };

/** The status for what the kernel reported: exit 137 is not a death by signal 9. */
export function statusOfExit(exit: ExitReport): ProcessStatus {
  if (exit.signal !== null) return "terminated";
  return exit.code === 0 ? "completed" : "failed";
}

/** A process that has just been started. */
export function startedInfo(processId: string, startedAt: Date): ProcessInfo {
  return { processId, status: "running", exitCode: 0, startedAt, finishedAt: undefined };
}

/** The final state of `info`. @throws TypeError when it is final already */
export function finishedInfo(info: ProcessInfo, exit: ExitReport, finishedAt: Date): ProcessInfo {
  if (info.status !== "running") {
    throw new TypeError(`Cannot finish a process twice: it is ${info.status}`);
  }
  return { ...info, status: statusOfExit(exit), exitCode: exit.code, finishedAt };
}
