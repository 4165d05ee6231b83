// All spools together: their number of bytes, the limit for it, and who has to go when it is reached.
// Must not import process/, rpc/ or gRPC; the owner of a record is told through a callback.
import { type Clock, systemClock } from "../clock.ts";
import { MIN_OUTPUT_LIMIT_BYTES } from "../limits.ts";
import { errorFields, type Logger } from "../log.ts";
import { ProcessSpool, type ProcessSpoolOptions } from "./process_spool.ts";
import { ReadAheadSlots } from "./read_ahead.ts";
import { recoverSegments } from "./recover.ts";
import { denoSegmentFiles, type SegmentFiles } from "./segment_files.ts";
import type { StreamSpool } from "./stream_spool.ts";
import { TailBudget } from "./tail_budget.ts";

/** What the spool limit leaves to each stream of a running process. */
export const SPOOL_FLOOR_BYTES = 1024 * 1024;

/** Memory of the live tails of all streams together. */
export const TAIL_BUDGET_BYTES = 32 * 1024 * 1024;

/** Pieces read ahead for all followers together: stalled ones hold no more than that many. */
const READ_AHEAD_SLOTS = 16;

/** Growth after which the search for something to drop is made again when it found nothing. */
const SEARCH_STEP_BYTES = 256 * 1024;

/** Options of {@linkcode SpoolStore}. */
export interface SpoolStoreOptions {
  /** Newest bytes kept of each stream, at least; 0 = all, else at least 64 KiB. */
  readonly outputLimitBytes: number;
  /** Bytes kept of all processes together; 0 = no limit. */
  readonly spoolLimitBytes: number;
  readonly logger: Logger;
  /** For tests: where segments are kept. */
  readonly files?: SegmentFiles;
  readonly clock?: Clock;
  /** For tests: memory of all live tails. */
  readonly tailBudgetBytes?: number;
}

/** What the owner of a process wants to know of its spool. */
export interface SpoolOwner {
  /**
   * The finished process's output was dropped for want of space, and its record should go as well.
   * Called once; the segment files are deleted after it has settled.
   */
  readonly onEvict?: () => void | Promise<void>;
}

/** Makes spools and keeps them within the limits. */
export class SpoolStore {
  readonly #options: SpoolStoreOptions;
  readonly #budget: TailBudget;
  readonly #readAhead = new ReadAheadSlots(READ_AHEAD_SLOTS);
  readonly #owners = new Map<ProcessSpool, SpoolOwner>();
  readonly #running = new Set<ProcessSpool>();
  /** By the time of their finish, oldest first. */
  readonly #finished: ProcessSpool[] = [];
  readonly #evictions = new Set<Promise<void>>();
  #bytes = 0;
  #searchAbove: number;
  #enforcing = false;

  /** @throws RangeError for an output limit below its minimum */
  constructor(options: SpoolStoreOptions) {
    const { outputLimitBytes } = options;
    if (outputLimitBytes !== 0 && !(outputLimitBytes >= MIN_OUTPUT_LIMIT_BYTES)) {
      throw new RangeError(
        `Cannot limit output to ${outputLimitBytes} bytes: the minimum is ${MIN_OUTPUT_LIMIT_BYTES}`,
      );
    }
    this.#options = options;
    this.#budget = new TailBudget(options.tailBudgetBytes ?? TAIL_BUDGET_BYTES);
    this.#searchAbove = options.spoolLimitBytes;
  }

  /** Bytes kept of all processes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Memory that the live tails take, in bytes. */
  get tailBytes(): number {
    return this.#budget.used;
  }

  /** A spool for a new process, in an existing `directory` that has no segments yet. */
  create(directory: string, owner: SpoolOwner = {}): ProcessSpool {
    return this.#adopt(new ProcessSpool(this.#spoolOptions(directory)), owner);
  }

  /**
   * The spool of a process of an agent that is gone, both streams ended. Call `finish` with the time of
   * the process's finish, and {@linkcode enforceLimit} when all are back.
   * @throws AgentError when the directory cannot be read
   */
  async recover(directory: string, owner: SpoolOwner = {}): Promise<ProcessSpool> {
    const { files = denoSegmentFiles, logger } = this.#options;
    const recovered = await recoverSegments(directory, files, logger);
    return this.#adopt(
      new ProcessSpool({ ...this.#spoolOptions(directory), recovered }),
      owner,
    );
  }

  /** Drops what is above the spool limit. Done by itself whenever output is appended. */
  enforceLimit(): void {
    const limit = this.#options.spoolLimitBytes;
    if (limit === 0 || this.#bytes <= this.#searchAbove || this.#enforcing) return;
    // Dropping changes the sum, which leads here again.
    this.#enforcing = true;
    while (this.#bytes > limit && (this.#evictOldest() || this.#dropFromLargest()));
    this.#searchAbove = this.#bytes > limit ? this.#bytes + SEARCH_STEP_BYTES : limit;
    this.#enforcing = false;
  }

  /** Resolves once evictions under way are done, callbacks and deletions included. */
  async settle(): Promise<void> {
    while (this.#evictions.size > 0) await Promise.all(this.#evictions);
  }

  #spoolOptions(directory: string): ProcessSpoolOptions {
    const { files = denoSegmentFiles, clock = systemClock, logger, outputLimitBytes } = this
      .#options;
    return {
      directory,
      outputLimitBytes,
      files,
      clock,
      logger,
      budget: this.#budget,
      readAhead: this.#readAhead,
      onBytes: (_spool, change) => this.#count(change),
      onFinish: (spool) => this.#noteFinished(spool),
      onForget: (spool) => this.#forget(spool),
    };
  }

  #adopt(spool: ProcessSpool, owner: SpoolOwner): ProcessSpool {
    // What is recovered is not held against the limit before the order of finishes is known.
    this.#bytes += spool.bytes;
    this.#owners.set(spool, owner);
    this.#running.add(spool);
    return spool;
  }

  #count(change: number): void {
    this.#bytes += change;
    if (change > 0) this.enforceLimit();
    else if (!this.#enforcing) this.#searchAbove = this.#options.spoolLimitBytes;
  }

  #noteFinished(spool: ProcessSpool): void {
    if (!this.#running.delete(spool)) return;
    const at = spool.finishedAtMs!;
    const before = this.#finished.findLastIndex((other) => other.finishedAtMs! <= at);
    this.#finished.splice(before + 1, 0, spool);
    this.#searchAbove = this.#options.spoolLimitBytes;
  }

  #forget(spool: ProcessSpool): void {
    this.#owners.delete(spool);
    this.#running.delete(spool);
    const index = this.#finished.indexOf(spool);
    if (index >= 0) this.#finished.splice(index, 1);
  }

  /** The finished process that has bytes and finished first goes. */
  #evictOldest(): boolean {
    const spool = this.#finished.find(({ bytes }) => bytes > 0);
    if (spool === undefined) return false;
    const owner = this.#owners.get(spool);
    this.#options.logger.info("output of a finished process dropped: spool limit reached", {
      directory: spool.directory,
      bytes: spool.bytes,
    });
    const eviction = this.#evict(spool, owner).finally(() => this.#evictions.delete(eviction));
    this.#evictions.add(eviction);
    return true;
  }

  async #evict(spool: ProcessSpool, owner: SpoolOwner | undefined): Promise<void> {
    spool.forget();
    try {
      await owner?.onEvict?.();
    } catch (error) {
      this.#options.logger.error("cannot drop the record of a process", errorFields(error));
    }
    // The files last: an agent that is killed in between must not find a record without its output.
    await spool.remove();
  }

  #dropFromLargest(): boolean {
    const streams: StreamSpool[] = [];
    for (const { stdout, stderr } of this.#running) {
      if (stdout.bytes > SPOOL_FLOOR_BYTES) streams.push(stdout);
      if (stderr.bytes > SPOOL_FLOOR_BYTES) streams.push(stderr);
    }
    streams.sort((a, b) => b.bytes - a.bytes);
    return streams.some((stream) => stream.dropOldest(SPOOL_FLOOR_BYTES));
  }
}
