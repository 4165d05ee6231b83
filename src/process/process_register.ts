// Which processes there are: known by their id, running, finished, forgotten.
// Must not start or kill any, nor write their records.
import type { Clock } from "../clock.ts";
import { AgentError } from "../errors.ts";
import type { ProcessEntry } from "./process_entry.ts";
import { requireProcessId } from "./process_id.ts";
import { Retention } from "./retention.ts";

/** Options of {@linkcode ProcessRegister}. */
export interface ProcessRegisterOptions {
  readonly clock: Clock;
  /** Finished processes that are kept. */
  readonly retain: number;
  readonly retainForMs: number;
  /** Called for each finished process that has to go. */
  readonly drop: (entry: ProcessEntry) => void;
}

/** An entry is in it until it is forgotten; what is forgotten does not come back. */
export class ProcessRegister implements Disposable {
  readonly #entries = new Map<string, ProcessEntry>();
  readonly #running = new Set<ProcessEntry>();
  readonly #finished: Retention<ProcessEntry>;

  constructor({ clock, retain, retainForMs, drop }: ProcessRegisterOptions) {
    this.#finished = new Retention({ clock, maxCount: retain, maxAgeMs: retainForMs, drop });
  }

  /** All that can be named, in the order of their start. */
  get entries(): MapIterator<ProcessEntry> {
    return this.#entries.values();
  }

  /** Spawned and not final, forgotten ones included. */
  get running(): ReadonlySet<ProcessEntry> {
    return this.#running;
  }

  /** How many finished ones are kept. */
  get finishedCount(): number {
    return this.#finished.count;
  }

  find(processId: string): ProcessEntry | undefined {
    return this.#entries.get(processId);
  }

  /** @throws AgentError `not-found`, `invalid-argument` for an empty id */
  lookUp(processId: string): ProcessEntry {
    const entry = this.#entries.get(requireProcessId(processId));
    if (entry !== undefined) return entry;
    throw new AgentError("not-found", `process "${processId}" not found`);
  }

  /** A process runs, whether or not anybody will ever learn of it. */
  noteRunning(entry: ProcessEntry): void {
    this.#running.add(entry);
  }

  /** Makes a process one that can be named. A final one is kept from now on, a running one once it is. */
  add(entry: ProcessEntry): void {
    this.#entries.set(entry.processId, entry);
    if (!this.#running.has(entry)) this.#finished.add(entry);
  }

  /** A process that ran is final. */
  noteFinal(entry: ProcessEntry): void {
    this.#running.delete(entry);
    if (!entry.forgotten) this.#finished.add(entry);
  }

  /** NOT_FOUND from now on. */
  forget(entry: ProcessEntry): void {
    entry.forgotten = true;
    this.#entries.delete(entry.processId);
    this.#finished.delete(entry);
  }

  /** Nothing is dropped any more. */
  [Symbol.dispose](): void {
    this.#finished[Symbol.dispose]();
  }
}
