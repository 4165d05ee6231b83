// All processes: started, looked up, read, killed, discarded.
// Must not import gRPC; bytes, files and trees are the business of others.
import { AgentError, cancelledError, fromOsError } from "../errors.ts";
import { bytesPerStream } from "../limits.ts";
import { followOutputs, type OutputPiece } from "../spool/mod.ts";
import { raceAbort } from "./abort.ts";
import { CountedOutputs } from "./counted_outputs.ts";
import type { KillReach } from "./kill/kill_reach.ts";
import { DRAIN_WINDOW_MS, type ProcessEntry } from "./process_entry.ts";
import { newProcessId } from "./process_id.ts";
import type { ProcessInfo } from "./process_info.ts";
import { ProcessLauncher } from "./process_launcher.ts";
import type {
  OutputRequest,
  ProcessMetrics,
  ProcessTableOptions,
} from "./process_table_options.ts";
import type { SpawnRequest } from "./spawner.ts";
import { MARKER_NAME, parseStartRequest, type StartRequest } from "./start_request.ts";
import { openTableParts, type TableParts, takeOver } from "./table_parts.ts";
import { shutDownTable } from "./table_shutdown.ts";

export { defaultMaxProcesses } from "./process_table_options.ts";
export type {
  OutputRequest,
  ProcessMetrics,
  ProcessTableOptions,
} from "./process_table_options.ts";
export type { KillReach } from "./kill/kill_reach.ts";
export type { ProcessInfo, ProcessStatus } from "./process_info.ts";
export type { StartRequest } from "./start_request.ts";
export type { OutputPiece, OutputSource } from "../spool/mod.ts";

/** Made by {@linkcode ProcessTable.open}. */
export class ProcessTable implements AsyncDisposable {
  readonly #options: ProcessTableOptions;
  readonly #parts: TableParts;
  readonly #launcher: ProcessLauncher;
  #nextOrder = 1;
  #starting = 0;
  #streams = 0;
  #shutdown: Promise<void> | undefined;

  /**
   * Opens a table: takes over what an earlier agent left, ends what it left running, and finds out how
   * far a kill reaches.
   * @throws AgentError or an OS error when the state directory, or a directory of cgroups, cannot be used
   */
  static async open(options: ProcessTableOptions): Promise<ProcessTable> {
    const parts = await openTableParts(options);
    const table = new ProcessTable(options, parts);
    try {
      table.#nextOrder = await takeOver(options, parts);
    } catch (error) {
      await table.shutdown(0);
      throw error;
    }
    return table;
  }

  private constructor(options: ProcessTableOptions, parts: TableParts) {
    this.#options = options;
    this.#parts = parts;
    const { killer, register, unasked, removal } = parts;
    this.#launcher = new ProcessLauncher({
      ...options,
      ...parts,
      within: (processId, spawn) => killer.within(processId, spawn),
      drainWindowMs: options.drainWindowMs ?? DRAIN_WINDOW_MS,
      nextOrder: () => this.#nextOrder++,
      onFinal: (entry) => {
        unasked.noteFinal(entry);
        register.noteFinal(entry);
        killer.release(entry.processId);
      },
      onEvict: (processId) => removal.evict(processId),
    });
  }

  /** How far a kill reaches under the agent's policy. */
  get killReach(): KillReach {
    return this.#parts.killer.reach;
  }

  /**
   * Starts a process; resolves when its program runs, or when it is known that it cannot (the process
   * is `failed` then). Aborting `signal` before that leaves nothing behind.
   * @throws AgentError as the contract lists them
   */
  async start(request: StartRequest, signal: AbortSignal): Promise<ProcessInfo> {
    const { maxProcesses, workspace } = this.#options;
    const { register, removal } = this.#parts;
    const spawnRequest = parseStartRequest(request, workspace);
    if (this.#shutdown !== undefined) throw new AgentError("unavailable", "shutting down");
    if (signal.aborted) throw cancelledError();
    if (maxProcesses > 0 && register.running.size + this.#starting >= maxProcesses) {
      throw new AgentError(
        "resource-exhausted",
        `maximum concurrent processes limit (${maxProcesses}) reached`,
      );
    }
    // A slot is held from here on until the process is final.
    this.#starting++;
    try {
      const processId = newProcessId();
      const env = { ...spawnRequest.env, [MARKER_NAME]: processId };
      const entry = await this.#launch(processId, { ...spawnRequest, env });
      try {
        this.#admit(entry, signal);
      } catch (error) {
        removal.discard(entry);
        throw fromOsError(error, "cannot store a process");
      }
      return entry.info;
    } finally {
      this.#starting--;
    }
  }

  /** The state of a process. @throws AgentError `not-found`, `invalid-argument` for an empty id */
  get(processId: string): ProcessInfo {
    return this.#parts.register.lookUp(processId).info;
  }

  /**
   * The output of a process from two offsets on. With `follow`, it ends when the process is final and
   * all was sent; {@linkcode get} says so before. Errors reject `next()`.
   * @throws AgentError `not-found`, `invalid-argument`
   */
  outputs(request: OutputRequest, signal: AbortSignal): AsyncIterableIterator<OutputPiece> {
    const { processId, stdoutOffset, stderrOffset, follow } = request;
    if (stdoutOffset < 0 || stderrOffset < 0) {
      throw new AgentError("invalid-argument", "offsets cannot be negative");
    }
    const { spool } = this.#parts.register.lookUp(processId);
    const maxPieceBytes = bytesPerStream(this.#streams + 1);
    const pieces = followOutputs({
      spool,
      stdoutOffset,
      stderrOffset,
      follow,
      signal,
      maxPieceBytes,
    });
    this.#streams++;
    return new CountedOutputs(pieces, () => this.#streams--);
  }

  /**
   * Kills a process and all that descends from it; resolves with the exit code that the kernel reported,
   * once everything is gone. Aborting `signal` ends the wait, not the kill.
   * @throws AgentError `not-found`, `invalid-argument`, `deadline-exceeded` with what is alive
   */
  async kill(processId: string, signal: AbortSignal): Promise<number> {
    const { register, killer, thread } = this.#parts;
    const entry = register.lookUp(processId);
    await raceAbort(killer.kill(entry, this.#options.killGraceMs), signal);
    thread.nudge();
    await raceAbort(entry.final, signal);
    return entry.info.exitCode;
  }

  /**
   * Kills a process and forgets it, in the background: nobody knows of it, and nobody could be told of a
   * failure. Unknown ids are no error.
   */
  discard(processId: string): void {
    const { register, removal } = this.#parts;
    const entry = register.find(processId);
    if (entry !== undefined) removal.discard(entry);
  }

  /** Numbers of this moment. */
  metrics(): ProcessMetrics {
    const { register, spools } = this.#parts;
    return {
      running: register.running.size,
      finished: register.finishedCount,
      spoolBytes: spools.bytes,
      tailBytes: spools.tailBytes,
      streams: this.#streams,
    };
  }

  /**
   * Refuses new starts, sends SIGTERM to every tree and SIGKILL at half of `graceMs` (0: at once), and
   * resolves when all processes are final and their records written, at the latest after `graceMs` (and
   * a moment). Followers get the last bytes and their end. A second call may shorten the grace to 0.
   */
  async shutdown(graceMs: number): Promise<void> {
    this.#shutdown ??= shutDownTable(this.#options, this.#parts, this.#launcher, graceMs);
    if (graceMs === 0) this.#parts.killer.hurryAll();
    await this.#shutdown;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown(0);
  }

  async #launch(processId: string, request: SpawnRequest): Promise<ProcessEntry> {
    try {
      return await this.#launcher.launch(processId, request);
    } catch (error) {
      this.#parts.thread.nudge();
      throw error;
    }
  }

  /**
   * Takes a process that was launched into the table.
   * @throws AgentError or an OS error when its start cannot be answered
   */
  #admit(entry: ProcessEntry, signal: AbortSignal): void {
    const { register, records, killer, unasked } = this.#parts;
    const { processId, info: { startedAt }, leader } = entry;
    // Where the spawn took long to come back from a cgroup, the process may have come to its end already.
    const isRunning = leader !== undefined && entry.finalAtMs === undefined;
    if (isRunning) register.noteRunning(entry);
    if (signal.aborted) throw cancelledError();
    if (this.#shutdown !== undefined) throw new AgentError("unavailable", "shutting down");
    if (leader !== undefined) {
      records.writeStarted({ processId, startedAt });
      killer.adopt(leader.pid, records.startedPathOf(processId));
    }
    if (isRunning) unasked.limitTime(entry);
    register.add(entry);
  }
}
