// The bytes of one stream on disk: files named `<source>.<offset of the first byte>`.
// Must not decide what is kept or when to write; does what its one writer says.
import type { Clock } from "../clock.ts";
import { osErrorCode } from "../errors.ts";
import type { SegmentFile, SegmentFiles } from "./segment_files.ts";

/** How often, and after which pauses, a first segment is tried while descriptors have run out. */
const CREATE_ATTEMPTS = 20;
const CREATE_PAUSE_MS = 100;

/** A file that holds the bytes from `start` to `end`. */
export interface Segment {
  readonly start: number;
  end: number;
}

/** Segments, oldest first. Only one of write, sweep and close may run at a time; reads may at any. */
export class SegmentLog {
  readonly #files: SegmentFiles;
  readonly #prefix: string;
  readonly #nextBytes: () => number;
  readonly #clock: Clock;
  #segments: Segment[];
  #dead: Segment[] = [];
  /** The open file of the last segment. */
  #open: SegmentFile | undefined;
  /** How many bytes that one takes. */
  #openBytes = 0;

  /**
   * `prefix` is the path of the segments up to the dot; `nextBytes` says how large the next one is to be;
   * `segments` are those there are already.
   */
  constructor(
    files: SegmentFiles,
    prefix: string,
    nextBytes: () => number,
    clock: Clock,
    segments: readonly Segment[] = [],
  ) {
    this.#files = files;
    this.#prefix = prefix;
    this.#nextBytes = nextBytes;
    this.#clock = clock;
    this.#segments = [...segments];
  }

  get isEmpty(): boolean {
    return this.#segments.length === 0;
  }

  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** Whether there are files to delete. */
  get hasDead(): boolean {
    return this.#dead.length > 0;
  }

  /** Most bytes that one write at `offset` should bring, so that segments end at their size. */
  roomAt(offset: number): number {
    const last = this.#continued(offset);
    const room = last === undefined ? 0 : this.#openBytes - (last.end - last.start);
    return room > 0 ? room : this.#nextBytes();
  }

  /** Starts a segment at `offset` and closes the one before. */
  async startSegment(offset: number): Promise<void> {
    // The new file first: when descriptors have run out, the old one can go on being written.
    const file = await this.#files.create(this.#path(offset));
    this.close();
    this.#open = file;
    this.#openBytes = this.#nextBytes();
    this.#segments.push({ start: offset, end: offset });
  }

  /**
   * Writes `data` at `offset`, which is where the last write ended or beyond it.
   * @throws the file system's error; how much was written is unknown then
   */
  async write(offset: number, data: Uint8Array): Promise<void> {
    const last = this.#continued(offset);
    if (last === undefined || last.end - last.start >= this.#openBytes) {
      await this.#startSegmentIfPossible(offset, last === undefined ? CREATE_ATTEMPTS : 1);
    }
    await this.#open!.write(data);
    this.#segments.at(-1)!.end = offset + data.byteLength;
  }

  /**
   * Starts a segment; where descriptors have run out, only as often as said. The open segment, if it
   * ends here, then goes on; with none the bytes would be lost, while descriptors come back as soon as
   * calls end. The kernel gives no sign when they do, hence the pauses; the child waits meanwhile.
   */
  async #startSegmentIfPossible(offset: number, attempts: number): Promise<void> {
    for (let attempt = 1;; attempt++) {
      try {
        return await this.startSegment(offset);
      } catch (error) {
        if (!isOutOfDescriptors(error)) throw error;
        if (attempt < attempts) await this.#pause();
        else if (this.#continued(offset) !== undefined) return;
        else throw error;
      }
    }
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => void this.#clock.setTimer(CREATE_PAUSE_MS, resolve));
  }

  /** The end of the oldest segment, if it is at most `limit`: the next place to cut at. */
  firstCut(limit: number): number | undefined {
    const end = this.#segments[0]?.end;
    return end !== undefined && end <= limit ? end : undefined;
  }

  /** The end of the newest of the segments that end at or below `limit`. */
  lastCut(limit: number): number | undefined {
    let cut: number | undefined;
    for (const { end } of this.#segments) {
      if (end > limit) break;
      cut = end;
    }
    return cut;
  }

  /** Marks segments without a byte at or above `offset` for deletion, except the open one. */
  drop(offset: number): void {
    const closed = this.#segments.length - (this.#open === undefined ? 0 : 1);
    let count = 0;
    while (count < closed && this.#segments[count]!.end <= offset) count++;
    if (count > 0) this.#dead.push(...this.#segments.splice(0, count));
  }

  /** Marks all for deletion and closes the open one. */
  dropAll(): void {
    this.close();
    this.#dead.push(...this.#segments.splice(0));
  }

  /** Deletes what is marked. What cannot be deleted is left behind: there is no one to tell. */
  async sweep(onError: (error: unknown) => void): Promise<void> {
    for (let segment = this.#dead.shift(); segment; segment = this.#dead.shift()) {
      try {
        await this.#files.remove(this.#path(segment.start));
      } catch (error) {
        if (osErrorCode(error) !== "ENOENT") onError(error);
      }
    }
  }

  /** Closes the open file; the next write starts a new segment. */
  close(): void {
    this.#open?.close();
    this.#open = undefined;
  }

  /**
   * The bytes from `start` to `end`, which must be written.
   * @throws the file system's error, NotFound also when the segment was deleted meanwhile
   */
  async read(start: number, end: number): Promise<Uint8Array> {
    const buffer = new Uint8Array(end - start);
    let offset = start;
    while (offset < end) {
      const segment = this.#find(offset);
      if (segment === undefined) throw new Deno.errors.NotFound(`no segment holds ${offset}`);
      const upTo = Math.min(segment.end, end);
      const part = buffer.subarray(offset - start, upTo - start);
      const count = await this.#files.read(
        this.#path(segment.start),
        offset - segment.start,
        part,
      );
      if (count < part.byteLength) throw new Error("a spool segment is shorter than was written");
      offset = upTo;
    }
    return buffer;
  }

  /** The open segment, if a write at `offset` goes on where it ends. */
  #continued(offset: number): Segment | undefined {
    const last = this.#segments.at(-1);
    return this.#open !== undefined && last?.end === offset ? last : undefined;
  }

  #find(offset: number): Segment | undefined {
    const segments = this.#segments;
    let low = 0;
    let high = segments.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (segments[middle]!.start <= offset) low = middle;
      else high = middle - 1;
    }
    const found = segments[low];
    return found !== undefined && found.start <= offset && offset < found.end ? found : undefined;
  }

  #path(start: number): string {
    return `${this.#prefix}.${start}`;
  }
}

function isOutOfDescriptors(error: unknown): boolean {
  const code = osErrorCode(error);
  return code === "EMFILE" || code === "ENFILE";
}
