// All processes: started, looked up, read, killed, kept, forgotten.
// Must not import gRPC; bytes, files and trees are the business of others.
import type { Timer } from "../clock.ts";
import { AgentError, cancelledError, fromOsError } from "../errors.ts";
import { errorFields } from "../log.ts";
import { followOutputs, type OutputPiece, SpoolStore } from "../spool/mod.ts";
import { raceAbort } from "./abort.ts";
import { CountedOutputs } from "./counted_outputs.ts";
import { Deadline } from "./deadline.ts";
import type { KillReach } from "./kill/kill_reach.ts";
import { openProcessKiller, type ProcessKiller } from "./kill/process_killer.ts";
import { DRAIN_WINDOW_MS, type ProcessEntry } from "./process_entry.ts";
import { newProcessId, requireProcessId } from "./process_id.ts";
import type { ProcessInfo } from "./process_info.ts";
import { ProcessLauncher } from "./process_launcher.ts";
import type {
  OutputRequest,
  ProcessMetrics,
  ProcessTableOptions,
} from "./process_table_options.ts";
import { RecordStore } from "./record_store.ts";
import { recoverProcesses } from "./recovery.ts";
import { Retention } from "./retention.ts";
import type { SpawnRequest } from "./spawner.ts";
import { MARKER_NAME, parseStartRequest, type StartRequest } from "./start_request.ts";
import { StandingThread } from "./standing_thread.ts";

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

/** What a shutdown may take beyond its grace: a look, a kill, the last writes. */
const SHUTDOWN_MARGIN_MS = 1_000;

/** Made by {@linkcode ProcessTable.open}. */
export class ProcessTable implements AsyncDisposable {
  readonly #options: ProcessTableOptions;
  readonly #records: RecordStore;
  readonly #spools: SpoolStore;
  readonly #entries = new Map<string, ProcessEntry>();
  /** Spawned and not final, forgotten ones included. */
  readonly #running = new Set<ProcessEntry>();
  readonly #finished: Retention<ProcessEntry>;
  readonly #launcher: ProcessLauncher;
  /** Work that nobody waits for, but the end of the table. Never rejects. */
  readonly #background = new Set<Promise<void>>();
  readonly #thread: StandingThread;
  readonly #timeouts = new Map<ProcessEntry, Timer>();
  #killer: ProcessKiller | undefined;
  #starting = 0;
  #streams = 0;
  #nextOrder = 1;
  #shutdown: Promise<void> | undefined;

  /**
   * Opens a table: takes over what an earlier agent left, ends what it left running, and finds out how
   * far a kill reaches.
   * @throws AgentError or an OS error when the state directory cannot be used
   */
  static async open(options: ProcessTableOptions): Promise<ProcessTable> {
    const table = new ProcessTable(options);
    try {
      await table.#open();
    } catch (error) {
      await table.shutdown(0);
      throw error;
    }
    return table;
  }

  private constructor(options: ProcessTableOptions) {
    const { state, outputLimitBytes, spoolLimitBytes, clock, log, retain, retainForMs } = options;
    this.#options = options;
    this.#thread = new StandingThread(clock);
    this.#records = new RecordStore(state.processesPath);
    this.#spools = new SpoolStore({ outputLimitBytes, spoolLimitBytes, logger: log });
    this.#finished = new Retention({
      clock,
      maxCount: retain,
      maxAgeMs: retainForMs,
      drop: (entry) => this.#inBackground(() => this.#drop(entry)),
    });
    this.#launcher = new ProcessLauncher({
      records: this.#records,
      spools: this.#spools,
      spawner: options.spawner,
      clock,
      log,
      drainWindowMs: options.drainWindowMs ?? DRAIN_WINDOW_MS,
      nextOrder: () => this.#nextOrder++,
      onFinal: (entry) => this.#onFinal(entry),
      onEvict: (processId) => this.#evict(processId),
    });
  }

  async #open(): Promise<void> {
    const { clock, log, state } = this.#options;
    const entries = this.#entries;
    const others = () => entries.values();
    const fifoPath = `${state.path}/fifo`;
    const killer = await openProcessKiller({ clock, log, marker: MARKER_NAME, others, fifoPath });
    this.#killer = killer;
    if (killer.reach === "tree") this.#thread.start(fifoPath);
    if (killer.reach !== "tree") {
      log.warn("a kill does not reach the whole tree", {
        killReach: killer.reach,
        why: killer.reason,
      });
    }
    const recovered = await recoverProcesses({
      records: this.#records,
      spools: this.#spools,
      asidePath: state.asidePath,
      clock,
      log,
      killByMarker: (processId) => killer.kill({ processId, leader: undefined }, 0),
      onEvict: (processId) => this.#evict(processId),
    });
    this.#nextOrder = recovered.nextOrder;
    for (const entry of recovered.entries) entries.set(entry.processId, entry);
    for (const entry of recovered.entries) this.#finished.add(entry);
    this.#spools.enforceLimit();
    if (recovered.entries.length > 0) {
      log.info("processes of an earlier agent taken over", { count: recovered.entries.length });
    }
  }

  /** How far a kill reaches under the agent's policy. */
  get killReach(): KillReach {
    return this.#openKiller.reach;
  }

  /**
   * Starts a process; resolves when its program runs, or when it is known that it cannot (the process
   * is `failed` then). Aborting `signal` before that leaves nothing behind.
   * @throws AgentError as the contract lists them
   */
  async start(request: StartRequest, signal: AbortSignal): Promise<ProcessInfo> {
    const { maxProcesses, workspace } = this.#options;
    const spawnRequest = parseStartRequest(request, workspace);
    if (this.#shutdown !== undefined) throw new AgentError("unavailable", "shutting down");
    if (signal.aborted) throw cancelledError();
    if (maxProcesses > 0 && this.#running.size + this.#starting >= maxProcesses) {
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
        this.#inBackground(() => this.#discard(entry));
        throw fromOsError(error, "cannot store a process");
      }
      return entry.info;
    } finally {
      this.#starting--;
    }
  }

  /** The state of a process. @throws AgentError `not-found`, `invalid-argument` for an empty id */
  get(processId: string): ProcessInfo {
    return this.#lookUp(processId).info;
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
    const { spool } = this.#lookUp(processId);
    const pieces = followOutputs({ spool, stdoutOffset, stderrOffset, follow, signal });
    this.#streams++;
    return new CountedOutputs(pieces, () => this.#streams--);
  }

  /**
   * Kills a process and all that descends from it; resolves with the exit code that the kernel reported,
   * once everything is gone. Aborting `signal` ends the wait, not the kill.
   * @throws AgentError `not-found`, `invalid-argument`, `deadline-exceeded` with what is alive
   */
  async kill(processId: string, signal: AbortSignal): Promise<number> {
    const entry = this.#lookUp(processId);
    await raceAbort(this.#openKiller.kill(entry, this.#options.killGraceMs), signal);
    this.#thread.nudge();
    await raceAbort(entry.final, signal);
    return entry.info.exitCode;
  }

  /**
   * Kills a process and forgets it, in the background: nobody knows of it, and nobody could be told of a
   * failure. Unknown ids are no error.
   */
  discard(processId: string): void {
    const entry = this.#entries.get(processId);
    if (entry !== undefined) this.#inBackground(() => this.#discard(entry));
  }

  /** Numbers of this moment. */
  metrics(): ProcessMetrics {
    return {
      running: this.#running.size,
      finished: this.#finished.count,
      spoolBytes: this.#spools.bytes,
      tailBytes: this.#spools.tailBytes,
      streams: this.#streams,
    };
  }

  /**
   * Refuses new starts, sends SIGTERM to every tree and SIGKILL at half of `graceMs` (0: at once), and
   * resolves when all processes are final and their records written, at the latest after `graceMs` (and
   * a moment). Followers get the last bytes and their end. A second call may shorten the grace to 0.
   */
  async shutdown(graceMs: number): Promise<void> {
    this.#shutdown ??= this.#shutDown(graceMs);
    if (graceMs === 0) this.#killer?.hurryAll();
    await this.#shutdown;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown(0);
  }

  get #openKiller(): ProcessKiller {
    if (this.#killer === undefined) throw new TypeError("Cannot use a process table: not open");
    return this.#killer;
  }

  #lookUp(processId: string): ProcessEntry {
    const entry = this.#entries.get(requireProcessId(processId));
    if (entry !== undefined) return entry;
    throw new AgentError("not-found", `process "${processId}" not found`);
  }

  async #launch(processId: string, request: SpawnRequest): Promise<ProcessEntry> {
    try {
      return await this.#launcher.launch(processId, request);
    } catch (error) {
      this.#thread.nudge();
      throw error;
    }
  }

  /**
   * Takes a process that was launched into the table.
   * @throws AgentError or an OS error when its start cannot be answered
   */
  #admit(entry: ProcessEntry, signal: AbortSignal): void {
    const { processId, info: { startedAt }, leader } = entry;
    if (leader !== undefined) this.#running.add(entry);
    if (signal.aborted) throw cancelledError();
    if (this.#shutdown !== undefined) throw new AgentError("unavailable", "shutting down");
    if (leader === undefined) this.#finished.add(entry);
    else {
      this.#records.writeStarted({ processId, startedAt });
      this.#openKiller.adopt(leader.pid);
      this.#limitTime(entry);
    }
    this.#entries.set(processId, entry);
  }

  #limitTime(entry: ProcessEntry): void {
    const { clock, log, processTimeoutMs } = this.#options;
    if (processTimeoutMs === 0) return;
    const { processId } = entry;
    const timer = clock.setTimer(processTimeoutMs, () => {
      log.warn("process killed: it ran longer than the process timeout", {
        processId,
        processTimeoutMs,
      });
      this.#inBackground(() => this.#killUnasked(entry));
    });
    this.#timeouts.set(entry, timer);
  }

  #onFinal(entry: ProcessEntry): void {
    this.#timeouts.get(entry)?.cancel();
    this.#timeouts.delete(entry);
    this.#running.delete(entry);
    if (!entry.forgotten) this.#finished.add(entry);
  }

  async #discard(entry: ProcessEntry): Promise<void> {
    entry.forgotten = true;
    this.#entries.delete(entry.processId);
    this.#finished.delete(entry);
    try {
      await this.#killUnasked(entry);
      if (entry.leader !== undefined) await entry.final;
    } finally {
      await this.#drop(entry);
    }
  }

  /** A kill that no client asked for, so none would repeat it where it is overdue. */
  async #killUnasked(entry: ProcessEntry): Promise<void> {
    for (;;) {
      try {
        return await this.#openKiller.kill(entry, 0);
      } catch (error) {
        const isOverdue = error instanceof AgentError && error.kind === "deadline-exceeded";
        if (!isOverdue || this.#shutdown !== undefined) throw error;
        this.#options.log.warn("a kill is overdue and goes on", errorFields(error));
      }
    }
  }

  /** Forgets a process for good: NOT_FOUND from now on. */
  async #drop(entry: ProcessEntry): Promise<void> {
    entry.forgotten = true;
    this.#entries.delete(entry.processId);
    await entry.spool.remove();
    await this.#records.remove(entry.processId);
  }

  /** The spool limit has taken the output of a finished process. */
  async #evict(processId: string): Promise<void> {
    const entry = this.#entries.get(processId);
    if (entry === undefined) return;
    this.#finished.delete(entry);
    entry.forgotten = true;
    this.#entries.delete(processId);
    await this.#records.remove(processId);
  }

  #inBackground(work: () => Promise<void>): void {
    const done = work().catch((error) => {
      this.#options.log.error("background work failed", errorFields(error));
    }).finally(() => this.#background.delete(done));
    this.#background.add(done);
  }

  async #shutDown(graceMs: number): Promise<void> {
    const { clock, log } = this.#options;
    const end = new Deadline(clock, graceMs + SHUTDOWN_MARGIN_MS);
    try {
      await Promise.race([this.#endTrees(graceMs / 2), end.passed]);
    } catch (error) {
      log.error("processes could not be ended", errorFields(error));
    }
    for (const timer of this.#timeouts.values()) timer.cancel();
    await this.#killer?.[Symbol.asyncDispose]();
    end.cancel();
    this.#thread.nudge();
    await this.#launcher.stopPumps();
    this.#finished[Symbol.dispose]();
    while (this.#background.size > 0) await Promise.all(this.#background);
    await this.#spools.settle();
    for (const { spool } of this.#entries.values()) await spool.flush();
    await this.#thread[Symbol.asyncDispose]();
  }

  /** Ends what runs, and what finished processes have left running. */
  async #endTrees(graceMs: number): Promise<void> {
    const killer = this.#killer;
    if (killer === undefined) return;
    const running = [...this.#running];
    const left = [...this.#entries.values()].filter((entry) => !this.#running.has(entry));
    const kills = [...running, ...await killer.findAlive(left)].map((entry) =>
      killer.kill(entry, graceMs).catch((error) => {
        const { processId } = entry;
        this.#options.log.error("process could not be ended", { processId, ...errorFields(error) });
      })
    );
    await Promise.all(kills);
    await Promise.all(running.map(({ final }) => final));
  }
}
