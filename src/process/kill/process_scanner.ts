// Looks at all processes, for all who ask at once, and keeps the helper that does it alive.
// Must not know trees.
import type { Helper } from "../deno_spawner.ts";
import type { Logger } from "../../log.ts";
import { HelperGoneError, helperScript, KillHelper, type KillSignal } from "./kill_helper.ts";
import { parseSnapshot, type ProcessSnapshot } from "./process_snapshot.ts";

/** Options of {@linkcode ProcessScanner}. */
export interface ProcessScannerOptions {
  /** Starts a shell with a script; throws when it cannot. */
  readonly spawnHelper: (script: string, marker: string) => Helper;
  readonly marker: string;
  /** A pid that every honest look at all processes shows. */
  readonly ownPid: number;
  readonly log: Logger;
}

/** One look costs some milliseconds of processor time, so all who ask meanwhile share the next one. */
export class ProcessScanner {
  readonly #options: ProcessScannerOptions;
  #helper: KillHelper | undefined;
  #running: Promise<ProcessSnapshot> | undefined;
  #queued: Promise<ProcessSnapshot> | undefined;
  #closed = false;

  constructor(options: ProcessScannerOptions) {
    this.#options = options;
  }

  /** The helper's pid, never to be signalled. */
  get helperPids(): readonly number[] {
    return this.#helper === undefined ? [] : [this.#helper.pid];
  }

  /**
   * A look that begins after this call, and after the signals sent so far.
   * @throws HelperGoneError, or what the start of the helper threw
   */
  fresh(): Promise<ProcessSnapshot> {
    this.#queued ??= this.#scanAfter(this.#running);
    return this.#queued;
  }

  /**
   * Sends a signal to processes, and to groups where negative.
   * @throws what the start of the helper threw
   */
  signal(signal: KillSignal, pids: readonly number[]): void {
    if (pids.length > 0) this.#ensureHelper().signal(signal, pids);
  }

  /**
   * Makes `pid` rather than the agent the one to go when memory runs out, and has the file `record` say
   * who it is. Best effort.
   */
  adopt(pid: number, score: number, record: string): void {
    this.#helper?.adopt(pid, score, record);
  }

  /** Makes a FIFO before the next look, unless there is something by that name. @throws as a signal */
  makeFifo(path: string): void {
    this.#ensureHelper().makeFifo(path);
  }

  /** Ends the helper. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#helper?.close();
  }

  async #scanAfter(previous: Promise<unknown> | undefined): Promise<ProcessSnapshot> {
    await previous?.catch(() => {});
    this.#queued = undefined;
    const running = this.#scan();
    this.#running = running;
    try {
      return await running;
    } finally {
      if (this.#running === running) this.#running = undefined;
    }
  }

  async #scan(): Promise<ProcessSnapshot> {
    const helper = this.#ensureHelper();
    const { ownPid, log } = this.#options;
    const snapshot = parseSnapshot(await helper.scan("scan"));
    if (snapshot.markersRead && snapshot.processes.has(ownPid)) return snapshot;
    // No fork to be had, or no grep that knows -z.
    log.debug("slow look at all processes", { processes: snapshot.processes.size });
    return parseSnapshot(await helper.scan("slow"));
  }

  #ensureHelper(): KillHelper {
    if (this.#helper?.alive) return this.#helper;
    if (this.#closed) throw new HelperGoneError("the kill helper was closed");
    const { spawnHelper, marker, log } = this.#options;
    const helper = new KillHelper(spawnHelper(helperScript(marker), marker));
    helper.gone.then(() => {
      if (!this.#closed) log.warn("the kill helper has ended", { pid: helper.pid });
    });
    this.#helper = helper;
    return helper;
  }
}
