// The output of one process: both streams, in the process's directory.
// Must not import process/, rpc/ or gRPC; the other files in the directory are not its own.
import { AgentError } from "../errors.ts";
import { ChangeSignal, type Watcher } from "./change_signal.ts";
import type { ReadAheadSlots } from "./read_ahead.ts";
import type { Segment } from "./segment_log.ts";
import { type OutputSource, StreamSpool, type StreamSpoolOptions } from "./stream_spool.ts";

/** One number for each stream of a process. */
export type StreamOffsets = Readonly<Record<OutputSource, number>>;

/** What both streams share; made by `SpoolStore`. */
export interface ProcessSpoolOptions extends
  Pick<
    StreamSpoolOptions,
    "directory" | "outputLimitBytes" | "files" | "clock" | "logger" | "budget"
  > {
  readonly onBytes: (spool: ProcessSpool, change: number) => void;
  readonly onFinish: (spool: ProcessSpool) => void;
  readonly onForget: (spool: ProcessSpool) => void;
  readonly readAhead: ReadAheadSlots;
  readonly recovered?: Readonly<Record<OutputSource, readonly Segment[]>>;
}

/** Both streams of a process. Made by `SpoolStore.create` and `SpoolStore.recover`. */
export class ProcessSpool {
  readonly directory: string;
  readonly stdout: StreamSpool;
  readonly stderr: StreamSpool;
  readonly #options: ProcessSpoolOptions;
  readonly #change = new ChangeSignal();
  #final: StreamOffsets | undefined;
  #finishedAtMs: number | undefined;
  #removed = false;

  constructor(options: ProcessSpoolOptions) {
    this.directory = options.directory;
    this.#options = options;
    const { directory, outputLimitBytes, files, clock, logger, budget, recovered } = options;
    const open = (source: OutputSource) =>
      new StreamSpool({
        directory,
        source,
        outputLimitBytes,
        files,
        clock,
        logger,
        budget,
        change: this.#change,
        onBytes: (change) => options.onBytes(this, change),
        outOfRange: (at, offset) => this.outOfRange(at, offset),
        ...(recovered === undefined ? {} : { recovered: recovered[source] }),
      });
    this.stdout = open("stdout");
    this.stderr = open("stderr");
  }

  /** Bytes kept of both streams. */
  get bytes(): number {
    return this.stdout.bytes + this.stderr.bytes;
  }

  get firstOffsets(): StreamOffsets {
    return { stdout: this.stdout.firstOffset, stderr: this.stderr.firstOffset };
  }

  get endOffsets(): StreamOffsets {
    return { stdout: this.stdout.endOffset, stderr: this.stderr.endOffset };
  }

  /** The end offsets at the moment of {@linkcode finish}; undefined before it. */
  get finalOffsets(): StreamOffsets | undefined {
    return this.#final;
  }

  /** When the process finished, on the caller's scale: the order in which finished spools go. */
  get finishedAtMs(): number | undefined {
    return this.#finishedAtMs;
  }

  /** Whether the output was forgotten. */
  get removed(): boolean {
    return this.#removed;
  }

  /**
   * The process's status is final: followers end once they sent what there is now. Output that comes
   * later is still appended. `finishedAtMs` orders finished spools for eviction (any one scale will do;
   * the default is the wall clock). A second call does nothing.
   */
  finish(finishedAtMs: number = Date.now()): void {
    if (this.#final !== undefined) return;
    this.#final = this.endOffsets;
    this.#finishedAtMs = finishedAtMs;
    this.#options.onFinish(this);
    this.#change.notify();
  }

  /** Wakes all who wait on this process, for a reason that is not the spool's. */
  wake(): void {
    this.#change.notify();
  }

  /** A watcher of all changes: bytes appended to either stream, an end, finality, removal. */
  watch(): Watcher {
    return this.#change.watch();
  }

  /** Who may read ahead: for followers only. */
  get readAhead(): ReadAheadSlots {
    return this.#options.readAhead;
  }

  /** How many readers wait for a change now. */
  get waiting(): number {
    return this.#change.waiting;
  }

  /** Resolves once all that was appended so far is written (or lost). Never rejects. */
  async flush(): Promise<void> {
    await Promise.all([this.stdout.flush(), this.stderr.flush()]);
  }

  /** Forgets all output at once; later appends are taken and thrown away. The files stay. */
  forget(): void {
    if (this.#removed) return;
    this.#removed = true;
    this.#options.onForget(this);
    this.stdout.forget();
    this.stderr.forget();
  }

  /**
   * Forgets all output at once, and deletes the segment files (not the directory: it is the owner's).
   * Never rejects; may be called any number of times.
   */
  async remove(): Promise<void> {
    this.forget();
    await Promise.all([this.stdout.remove(), this.stderr.remove()]);
  }

  /** The error for an offset that is not kept (any more): names what is, for both streams. */
  outOfRange(source: OutputSource, offset: number): AgentError {
    const first = this.firstOffsets;
    return new AgentError(
      "out-of-range",
      `${source} offset ${offset} is no longer stored: the first ${source} offset is ${
        first[source]
      } (stdout ${first.stdout}, stderr ${first.stderr})`,
      {
        details: {
          "ateenv-first-stdout-offset": String(first.stdout),
          "ateenv-first-stderr-offset": String(first.stderr),
        },
      },
    );
  }
}
