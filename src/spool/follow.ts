// One reader of both streams of a process: from two offsets on, to the end there is or will be.
// Must not import process/, rpc/ or gRPC; the status of the process is asked through a callback.
import { cancelledError } from "../errors.ts";
import { MAX_PIECE_BYTES } from "../limits.ts";
import type { Watcher } from "./change_signal.ts";
import type { ProcessSpool, StreamOffsets } from "./process_spool.ts";
import type { SpoolReader } from "./spool_reader.ts";
import type { OutputSource } from "./stream_spool.ts";

/** Bytes of one stream. They are shared between readers and must not be modified. */
export interface OutputPiece {
  readonly source: OutputSource;
  readonly data: Uint8Array;
}

/** What is to be read. Offsets are bytes, not negative, and may lie beyond the end. */
export interface FollowRequest {
  readonly spool: ProcessSpool;
  readonly stdoutOffset: number;
  readonly stderrOffset: number;
  /** False: what is stored now. True: until the process is final and all of it was sent. */
  readonly follow: boolean;
  /**
   * The end offsets at finality, undefined while the process runs. Whoever makes it change calls
   * `spool.wake()`. Default: what `spool.finish()` noted.
   */
  readonly finished?: () => StreamOffsets | undefined;
  readonly signal?: AbortSignal;
  /** Most bytes of a piece. */
  readonly maxPieceBytes?: number;
}

/**
 * The output from the request's offsets on. Ask for one piece at a time: it is pulled, so that a
 * consumer that waits holds two pieces at most. `return()` works at any time, also while `next()` waits.
 * Errors reject `next()`: AgentError `out-of-range` when an offset is not kept (any more), `cancelled`
 * when the signal is aborted, others when the disk cannot be read.
 */
export function followOutputs(request: FollowRequest): AsyncIterableIterator<OutputPiece> {
  return new OutputFollower(request);
}

/** A stream's side of a follower. */
interface Side {
  readonly source: OutputSource;
  readonly reader: SpoolReader;
  /** Nothing at or above it is sent; infinite while following a process that runs. */
  end: number;
  /** The next piece, being read from disk while the consumer is busy with another. */
  ahead: Promise<Uint8Array> | undefined;
}

const DONE: IteratorReturnResult<undefined> = { done: true, value: undefined };

class OutputFollower implements AsyncIterableIterator<OutputPiece> {
  readonly #request: FollowRequest;
  readonly #maxBytes: number;
  readonly #sides: readonly [Side, Side];
  readonly #watcher: Watcher;
  readonly #onAbort = () => void this.#close();
  #turn: 0 | 1 = 0;
  #endsKnown: boolean;
  #closed = false;
  /** The one read from disk under way, if any: it has to be over before the follower is. */
  #reading: Promise<unknown> | undefined;

  constructor(request: FollowRequest) {
    const { spool, follow, stdoutOffset, stderrOffset, signal } = request;
    this.#request = request;
    this.#maxBytes = request.maxPieceBytes ?? MAX_PIECE_BYTES;
    const side = (source: OutputSource, offset: number): Side => ({
      source,
      reader: spool[source].openReader(offset, follow && !spool[source].ended),
      end: follow ? Infinity : spool[source].endOffset,
      ahead: undefined,
    });
    this.#sides = [side("stdout", stdoutOffset), side("stderr", stderrOffset)];
    this.#endsKnown = !follow;
    this.#watcher = spool.watch();
    signal?.addEventListener("abort", this.#onAbort);
    if (signal?.aborted) this.#onAbort();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<OutputPiece, undefined>> {
    try {
      while (!this.#closed) {
        if (!this.#endsKnown) this.#learnEnds();
        const side = this.#sideToRead();
        if (side !== undefined) {
          const data = this.#take(side);
          const piece = data instanceof Promise ? await data : data;
          if (this.#closed) break;
          this.#readAhead();
          return { done: false, value: { source: side.source, data: piece } };
        }
        if (this.#endsKnown || this.#request.spool.removed) break;
        await this.#watcher.wait();
      }
    } catch (error) {
      await this.#close();
      throw error;
    }
    await this.#close();
    if (this.#request.signal?.aborted) throw cancelledError();
    return DONE;
  }

  async return(): Promise<IteratorResult<OutputPiece, undefined>> {
    await this.#close();
    return DONE;
  }

  /** Once the process is final: what comes later is not waited for, so that a daemon's output ends. */
  #learnEnds(): void {
    const { spool, finished } = this.#request;
    const final = finished === undefined ? spool.finalOffsets : finished();
    if (final === undefined) return;
    this.#endsKnown = true;
    for (const side of this.#sides) {
      side.end = Math.max(final[side.source], spool[side.source].endOffset);
    }
  }

  /** The side whose turn it is and has something, or the other one. */
  #sideToRead(): Side | undefined {
    for (let i = 0; i < 2; i++) {
      const side = this.#sides[this.#turn]!;
      this.#turn = this.#turn === 0 ? 1 : 0;
      if (side.ahead !== undefined || hasMore(side)) return side;
    }
    return undefined;
  }

  #take(side: Side): Uint8Array | Promise<Uint8Array> {
    const { ahead } = side;
    if (ahead !== undefined) {
      side.ahead = undefined;
      this.#request.spool.readAhead.give();
      return ahead;
    }
    const data = side.reader.read(Math.min(this.#maxBytes, side.end - side.reader.offset))!;
    if (data instanceof Promise) this.#reading = data;
    return data;
  }

  /** Starts on the next piece if it is on disk: at most one, so that memory stays bounded. */
  #readAhead(): void {
    const next = this.#sides[this.#turn]!;
    const other = this.#sides[this.#turn === 0 ? 1 : 0]!;
    if (next.ahead !== undefined || other.ahead !== undefined) return;
    const side = hasMore(next) ? next : other;
    if (!hasMore(side) || !side.reader.isBehind || !this.#request.spool.readAhead.take()) return;
    try {
      const data = Promise.resolve(this.#take(side));
      // Looked at by the next call, or by none.
      data.catch(() => {});
      side.ahead = data;
    } catch {
      // Overtaken just now: the next call finds the same and says so.
      this.#request.spool.readAhead.give();
    }
  }

  async #close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true;
      this.#request.signal?.removeEventListener("abort", this.#onAbort);
      this.#watcher[Symbol.dispose]();
      for (const side of this.#sides) {
        side.reader[Symbol.dispose]();
        if (side.ahead !== undefined) this.#request.spool.readAhead.give();
        side.ahead = undefined;
      }
    }
    await this.#reading?.catch(() => {});
  }
}

/** Whether there is a byte to send, or an offset to complain of. */
function hasMore({ reader, end }: Side): boolean {
  return reader.hasMore && reader.offset < end;
}
