// The port to the kernel's processes: what the table needs, and no more.
// Must not import Deno.Command; deno_spawner.ts is the real one, tests bring others.
import type { ExitReport } from "./process_info.ts";

/** A checked request: nothing in it is empty, relative or holds a NUL byte. */
export interface SpawnRequest {
  /** At least one element. */
  readonly command: readonly string[];
  /** Absolute path. */
  readonly cwd: string;
  /** Laid over the agent's own environment. */
  readonly env: Readonly<Record<string, string>>;
}

/** A leader: the first process of a tree, with its own session and process group. */
export interface SpawnedChild {
  readonly pid: number;
  /** Byte streams (BYOB). */
  readonly stdout: ReadableStream<Uint8Array<ArrayBuffer>>;
  readonly stderr: ReadableStream<Uint8Array<ArrayBuffer>>;
  /** Resolves when the kernel has reported the exit of the leader, whoever holds its pipes. */
  readonly exit: Promise<ExitReport>;
  /** Signals the leader alone; nothing happens when it is gone. Needs no further permission. */
  signal(signal: "SIGTERM" | "SIGKILL"): void;
}

/** A program that cannot be run is an outcome of the process, not a failed call. */
export interface CannotRun {
  /** 127: not found. 126: found, but cannot be executed. */
  readonly exitCode: 126 | 127;
  /** One line for the process's stderr, without the line end. */
  readonly reason: string;
}

/** Starts leaders. */
export interface Spawner {
  /**
   * Starts `request.command`.
   * @throws AgentError for what the contract makes an error of the call
   */
  spawn(request: SpawnRequest): Promise<SpawnedChild | CannotRun>;
}

/** Whether the program did not get to run. */
export function isCannotRun(outcome: SpawnedChild | CannotRun): outcome is CannotRun {
  return "reason" in outcome;
}
