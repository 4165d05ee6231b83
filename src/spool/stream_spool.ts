// One output stream of one process: appended to by a pump, written behind, read at any offset.
// Must not import process/, rpc/ or gRPC; knows nothing of who reads or why.
import type { Clock } from "../clock.ts";
import { type AgentError, fromOsError } from "../errors.ts";
import { errorFields, type Logger } from "../log.ts";
import { ChangePacer } from "./change_pacer.ts";
import type { ChangeSignal } from "./change_signal.ts";
import { LiveTail } from "./live_tail.ts";
import { type Segment, SegmentLog } from "./segment_log.ts";
import type { SegmentFiles } from "./segment_files.ts";
import type { TailBudget, TailHolder } from "./tail_budget.ts";
import { SharedReads } from "./shared_reads.ts";
import { WriteBehind } from "./write_behind.ts";
import { SpoolReader } from "./spool_reader.ts";

/** Which of the two streams of a process. */
export type OutputSource = "stdout" | "stderr";

/**
 * Segment files are an eighth of what is kept, so that limits are kept well by deleting whole ones. Not
 * smaller than the first, because each costs about a millisecond, in which nothing is written; not larger than the
 * second, from where on that does not show. With an output limit: an eighth of that, if it is less.
 */
const MIN_SEGMENT_BYTES = 1024 * 1024;
const MAX_SEGMENT_BYTES = 4 * 1024 * 1024;

/** Memory of one live tail: what is not written yet, plus the newest of the rest for followers. */
export const TAIL_BYTES = 1024 * 1024;

/** A pump that had to wait goes on once the tail is down to this. */
const TAIL_LOW_BYTES = TAIL_BYTES / 2;

/** What a stream needs of its surroundings. */
export interface StreamSpoolOptions {
  readonly directory: string;
  readonly source: OutputSource;
  /** Newest bytes that are kept at least; 0 = all. */
  readonly outputLimitBytes: number;
  readonly files: SegmentFiles;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly change: ChangeSignal;
  readonly budget: TailBudget;
  /** Told of each change of the bytes kept, recovered ones excepted. May call {@linkcode StreamSpool.dropOldest}. */
  readonly onBytes: (change: number) => void;
  /** The error for an offset of this stream that is not kept any more. */
  readonly outOfRange: (source: OutputSource, offset: number) => AgentError;
  /** Segments of an agent that is gone: the stream has ended, and is served from them. */
  readonly recovered?: readonly Segment[];
}

/**
 * Bytes with offsets. Invariants: `firstOffset <= written <= endOffset`; whatever is at or above
 * `firstOffset` is in a segment if below `written`, and in the tail if at or above the tail's start,
 * which is at most `written`.
 */
export class StreamSpool implements TailHolder {
  readonly source: OutputSource;
  readonly #options: StreamSpoolOptions;
  readonly #tail: LiveTail;
  readonly #log: SegmentLog;
  readonly #writer: WriteBehind;
  readonly #pacer: ChangePacer;
  readonly #diskReads = new SharedReads();
  #first: number;
  #ended: boolean;
  #forgotten = false;
  #followers = 0;
  #lossLogged = false;

  constructor(options: StreamSpoolOptions) {
    const { source, directory, files, clock, budget, recovered = [] } = options;
    this.source = source;
    this.#options = options;
    const path = `${directory}/${source}`;
    this.#first = recovered[0]?.start ?? 0;
    this.#tail = new LiveTail(budget, recovered.at(-1)?.end ?? 0);
    this.#log = new SegmentLog(files, path, () => this.#segmentBytes, clock, recovered);
    this.#writer = new WriteBehind(this.#tail, this.#log, {
      onLost: (end, error) => this.#lose(end, error),
      onStep: () => this.#trimAfterWrite(),
      onDeleteFailed: (error) => this.#warn("cannot delete a spool segment", error),
    });
    this.#pacer = new ChangePacer(options.change, clock);
    this.#ended = options.recovered !== undefined;
  }

  /** Offset of the oldest byte that is kept; the end where nothing is. Only ever grows. */
  get firstOffset(): number {
    return this.#first;
  }

  /** Offset after the newest byte, which is also how many bytes the child wrote. */
  get endOffset(): number {
    return this.#tail.end;
  }

  /** Whether the child's end of the stream is closed: nothing is appended any more. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Bytes kept. */
  get bytes(): number {
    return this.#tail.end - this.#first;
  }

  /** Offset below which reads come from disk. */
  get tailStart(): number {
    return this.#tail.start;
  }

  /**
   * Adds `chunk`, which belongs to the spool from now on, and can be read at once.
   * Never fails: what the disk does not take is counted as dropped.
   * @returns a promise when the disk is behind: read no more from the child until it resolves
   */
  append(chunk: Uint8Array): Promise<void> | undefined {
    if (this.#forgotten || chunk.byteLength === 0) return undefined;
    if (this.#ended) throw new TypeError("Cannot append: the stream has ended");
    const { budget, onBytes } = this.#options;
    this.#tail.push(chunk);
    onBytes(chunk.byteLength);
    this.#enforceOutputLimit();
    this.#tail.trim(this.#writer.written, this.#followers > 0 ? TAIL_BYTES : 0);
    if (budget.exceeded) budget.relieve();
    if (this.#followers > 0) budget.touch(this);
    this.#pacer.added(chunk.byteLength);
    this.#writer.start();
    if (this.#tail.weight <= TAIL_BYTES && !budget.exceeded) return undefined;
    // Nothing left to wait for when the limits took this very output.
    if (this.#writer.written >= this.endOffset) return undefined;
    return this.#writer.waitCaughtUp();
  }

  /** Says that nothing more will come. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#pacer.tell();
    this.#writer.end();
  }

  /** Resolves once all that was appended so far is written (or lost). Never rejects. */
  flush(): Promise<void> {
    return this.#writer.flush();
  }

  /** Forgets all bytes at once, and takes no more. The files stay until {@linkcode remove}. */
  forget(): void {
    if (this.#forgotten) return;
    this.#forgotten = true;
    this.#ended = true;
    this.#writer.abandon();
    this.#moveFirst(this.endOffset);
    this.#pacer.tell();
  }

  /** Forgets all bytes at once; resolves when the files are deleted. */
  remove(): Promise<void> {
    this.forget();
    return this.#writer.deleteAll();
  }

  /**
   * Drops the oldest segment if `keepBytes` remain after that.
   * @returns whether anything was dropped
   */
  dropOldest(keepBytes: number): boolean {
    const cut = this.#log.firstCut(this.endOffset - keepBytes);
    if (cut === undefined || cut <= this.#first) return false;
    this.#dropBelow(cut);
    this.#writer.start();
    return true;
  }

  /**
   * A cursor at `offset`, which may lie beyond the end. A `following` one has the newest bytes kept in
   * memory for it. Dispose it.
   */
  openReader(offset: number, following = false): SpoolReader {
    return new SpoolReader(this, offset, following);
  }

  /**
   * Bytes from `offset` on, at most `maxBytes` and at least one; null at or past the end.
   * The array is shared with other readers: not to be modified.
   * @throws AgentError `out-of-range` below the first offset; by a rejection of the promise as well
   */
  readAt(offset: number, maxBytes: number): Uint8Array | null | Promise<Uint8Array> {
    if (offset < this.#first) throw this.#options.outOfRange(this.source, offset);
    if (offset >= this.endOffset) return null;
    if (offset >= this.#tail.start) return this.#tail.read(offset, maxBytes);
    const end = Math.min(offset + maxBytes, this.#tail.start);
    return this.#diskReads.get(offset, end, () => this.#readFromDisk(offset, end));
  }

  /** For {@linkcode SpoolReader} only. */
  addFollower(): void {
    this.#followers++;
  }

  /** For {@linkcode SpoolReader} only. */
  removeFollower(): void {
    this.#followers--;
    if (this.#followers === 0) this.releaseRecent();
  }

  releaseRecent(): void {
    this.#options.budget.forget(this);
    this.#tail.trim(this.#writer.written, 0);
  }

  async #readFromDisk(offset: number, end: number): Promise<Uint8Array> {
    try {
      return await this.#log.read(offset, end);
    } catch (error) {
      // The segment may have been dropped on the way. Bytes read are right in any case: what stands
      // at an offset never changes.
      if (offset < this.#first) throw this.#options.outOfRange(this.source, offset);
      throw fromOsError(error, `cannot read stored ${this.source}`);
    }
  }

  /** Size of the next segment. */
  get #segmentBytes(): number {
    const limit = this.#options.outputLimitBytes;
    return limit > 0
      ? Math.min(MAX_SEGMENT_BYTES, Math.floor(limit / 8))
      : Math.min(MAX_SEGMENT_BYTES, Math.max(MIN_SEGMENT_BYTES, Math.floor(this.bytes / 8)));
  }

  #enforceOutputLimit(): void {
    const limit = this.#options.outputLimitBytes;
    if (limit === 0 || this.bytes <= limit + this.#segmentBytes) return;
    const target = this.endOffset - limit;
    const cut = this.#log.lastCut(target) ?? this.#first;
    // What is not written yet has no segments to cut between.
    this.#dropBelow(this.endOffset - cut <= limit + this.#segmentBytes ? cut : target);
  }

  #dropBelow(offset: number): void {
    if (offset <= this.#first) return;
    this.#moveFirst(offset);
    this.#log.drop(offset);
  }

  #moveFirst(offset: number): void {
    const freed = offset - this.#first;
    this.#first = offset;
    this.#writer.skipTo(offset);
    this.#tail.trim(offset, 0);
    if (freed > 0) this.#options.onBytes(-freed);
  }

  /** The bytes up to `end` could not be written: all before it counts as dropped, and makes room. */
  #lose(end: number, error: unknown): void {
    this.#dropBelow(end);
    this.#log.drop(this.#first);
    if (this.#lossLogged || this.#forgotten) return;
    this.#lossLogged = true;
    this.#warn("output lost: cannot store it", error);
  }

  /** Returns whether memory is low enough for a waiting pump. */
  #trimAfterWrite(): boolean {
    const { budget } = this.#options;
    const isFollowed = this.#followers > 0 && !this.#ended;
    const keep = !isFollowed ? 0 : this.#writer.isAwaited ? TAIL_LOW_BYTES : TAIL_BYTES;
    this.#tail.trim(this.#writer.written, keep);
    return this.#tail.weight <= TAIL_LOW_BYTES && !budget.exceeded;
  }

  #warn(message: string, error: unknown): void {
    const { directory, logger } = this.#options;
    const firstOffset = this.#first;
    logger.warn(message, { directory, stream: this.source, firstOffset, ...errorFields(error) });
  }
}
