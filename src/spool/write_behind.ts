// Brings a live tail to disk, behind the readers' backs: one file operation at a time, in large writes.
// Must not decide what is kept: its owner is asked, and told of what could not be written.
import type { LiveTail } from "./live_tail.ts";
import type { SegmentLog } from "./segment_log.ts";

/** What the stream decides. */
export interface WriteBehindOwner {
  /** The bytes up to `end` could not be written, and are not tried again. */
  onLost(end: number, error: unknown): void;
  /** A step is done: what is written may leave memory. Returns whether a waiting pump may go on. */
  onStep(): boolean;
  onDeleteFailed(error: unknown): void;
}

/** The one writer of a stream's segments. */
export class WriteBehind {
  readonly #tail: LiveTail;
  readonly #log: SegmentLog;
  readonly #owner: WriteBehindOwner;
  #written: number;
  #ended = false;
  #abandoned = false;
  #deleting = false;
  #running = false;
  #caughtUp: PromiseWithResolvers<void> | undefined;
  #idle: PromiseWithResolvers<void> | undefined;
  #flushes: { readonly upTo: number; readonly resolve: () => void }[] = [];

  constructor(tail: LiveTail, log: SegmentLog, owner: WriteBehindOwner) {
    this.#tail = tail;
    this.#log = log;
    this.#owner = owner;
    this.#written = tail.end;
  }

  /** Bytes below this offset are on disk, or not kept. */
  get written(): number {
    return this.#written;
  }

  /** Whether a pump waits. */
  get isAwaited(): boolean {
    return this.#caughtUp !== undefined;
  }

  /** Looks at what there is to do; returns at once. */
  start(): void {
    if (this.#running) return;
    this.#running = true;
    this.#run();
  }

  /** The bytes below `offset` need not be written (any more). */
  skipTo(offset: number): void {
    this.#written = Math.max(this.#written, offset);
  }

  /** Makes no more files: the directory is about to go. */
  abandon(): void {
    this.#abandoned = true;
  }

  /** Closes the open file once all is written. */
  end(): void {
    this.#ended = true;
    this.start();
  }

  /** Resolves when the owner lets a pump go on. */
  waitCaughtUp(): Promise<void> {
    this.#caughtUp ??= Promise.withResolvers();
    return this.#caughtUp.promise;
  }

  /** Resolves once all that is in the tail now is written, skipped or lost. */
  flush(): Promise<void> {
    // Not at the first quiet moment: a descendant that never stops writing must not hold up a status.
    const upTo = this.#tail.end;
    if (this.#written >= upTo) return Promise.resolve();
    return new Promise((resolve) => this.#flushes.push({ upTo, resolve }));
  }

  /** Deletes all segments. The caller has abandoned the rest, skipped to the end, and appends nothing from now on. */
  async deleteAll(): Promise<void> {
    this.#deleting = true;
    this.start();
    if (!this.#running) return;
    this.#idle ??= Promise.withResolvers();
    await this.#idle.promise;
  }

  get #hasMore(): boolean {
    return this.#written < this.#tail.end;
  }

  /** Never rejects: each of its steps catches what it may throw. */
  async #run(): Promise<void> {
    do {
      if (this.#deleting) this.#log.dropAll();
      if (this.#log.hasDead) await this.#log.sweep((error) => this.#owner.onDeleteFailed(error));
      if (this.#hasMore) await this.#writeNext();
      else if (this.#log.isEmpty && this.#written > 0 && !this.#abandoned) await this.#mark();
      this.#afterStep();
    } while (this.#hasMore || this.#log.hasDead || (this.#deleting && !this.#log.isEmpty));
    if (this.#ended) this.#log.close();
    this.#running = false;
    const idle = this.#idle;
    this.#idle = undefined;
    idle?.resolve();
  }

  async #writeNext(): Promise<void> {
    const from = this.#written;
    const data = this.#tail.collect(from, this.#log.roomAt(from));
    const end = from + data.byteLength;
    try {
      await this.#log.write(from, data);
    } catch (error) {
      this.#log.close();
      this.#owner.onLost(end, error);
    }
    this.skipTo(end);
  }

  /** After a loss at the end no file would tell a restarted agent where the stream had been. */
  async #mark(): Promise<void> {
    try {
      await this.#log.startSegment(this.#written);
    } catch {
      // An empty file that cannot be made is one more sign of the same full disk.
    }
  }

  #afterStep(): void {
    const mayGoOn = this.#owner.onStep() || !this.#hasMore;
    while (this.#flushes.length > 0 && this.#flushes[0]!.upTo <= this.#written) {
      this.#flushes.shift()!.resolve();
    }
    if (this.#caughtUp === undefined || !mayGoOn) return;
    this.#caughtUp.resolve();
    this.#caughtUp = undefined;
  }
}
