// The newest bytes of a stream in memory, as the pieces in which they came, shared by all readers.
// Must not know files or limits of retention: its owner says what may go.
import { MAX_PIECE_BYTES } from "../limits.ts";
import type { TailBudget } from "./tail_budget.ts";

/** What a piece costs beside its bytes: the array object, its buffer, and the list's entry. */
const PIECE_OVERHEAD_BYTES = 256;

/**
 * Pieces from this size on are handed out as they are, smaller ones are joined for who is behind: a pump
 * brings 64 KiB at a time, and large messages cost far less than many of those.
 */
const JOIN_BELOW_BYTES = 256 * 1024;

/** Most bytes that are joined into one piece: half of a tail, which loses whole pieces only. */
const JOIN_MAX_BYTES = 512 * 1024;

interface Piece {
  readonly start: number;
  readonly data: Uint8Array;
}

/** Bytes from {@linkcode LiveTail.start} to {@linkcode LiveTail.end}, without a gap. */
export class LiveTail {
  readonly #budget: TailBudget;
  #pieces: Piece[] = [];
  #start: number;
  #end: number;
  #weight = 0;

  constructor(budget: TailBudget, offset: number) {
    this.#budget = budget;
    this.#start = offset;
    this.#end = offset;
  }

  /** Offset of the first byte held; equal to `end` when there is none. */
  get start(): number {
    return this.#start;
  }

  /** Offset after the last byte. */
  get end(): number {
    return this.#end;
  }

  /** Memory held, in bytes, the overhead of pieces included. */
  get weight(): number {
    return this.#weight;
  }

  /** Adds `chunk`, which belongs to the tail from now on. */
  push(chunk: Uint8Array): void {
    // A few bytes at the front of a large buffer would hold all of it.
    const data = chunk.byteLength * 2 <= chunk.buffer.byteLength ? chunk.slice() : chunk;
    for (let from = 0; from < data.byteLength; from += MAX_PIECE_BYTES) {
      const piece = data.byteLength <= MAX_PIECE_BYTES
        ? data
        : data.subarray(from, from + MAX_PIECE_BYTES);
      this.#pieces.push({ start: this.#end, data: piece });
      this.#end += piece.byteLength;
      this.#weigh(piece.byteLength + PIECE_OVERHEAD_BYTES);
    }
  }

  /** Forgets whole pieces that end at or below `limit`, oldest first, until `maxWeight` is reached. */
  trim(limit: number, maxWeight: number): void {
    let count = 0;
    let freed = 0;
    for (; count < this.#pieces.length; count++) {
      const { start, data } = this.#pieces[count]!;
      if (this.#weight - freed <= maxWeight || start + data.byteLength > limit) break;
      freed += data.byteLength + PIECE_OVERHEAD_BYTES;
    }
    if (count === 0) return;
    this.#pieces.splice(0, count);
    this.#start = this.#pieces[0]?.start ?? this.#end;
    this.#weigh(-freed);
  }

  /**
   * Bytes from `offset` on, which must be held: at least one, at most `maxBytes`, in memory that readers share. Small
   * pieces are joined, for all, when a reader is more than one of them behind.
   */
  read(offset: number, maxBytes: number): Uint8Array {
    const index = this.#indexOf(offset);
    const { start, data } = this.#pieces[index]!;
    if (offset !== start || data.byteLength > maxBytes) {
      return data.subarray(offset - start, offset - start + maxBytes);
    }
    const count = this.#countJoinable(index, maxBytes);
    if (count === 1) return data;
    const joined = this.#join(index, count);
    this.#pieces.splice(index, count, { start, data: joined });
    this.#weigh(-(count - 1) * PIECE_OVERHEAD_BYTES);
    return joined;
  }

  /** Like {@linkcode read} for the one who writes the bytes down: leaves the pieces as they are. */
  collect(offset: number, maxBytes: number): Uint8Array {
    const index = this.#indexOf(offset);
    const { start, data } = this.#pieces[index]!;
    if (offset === start && data.byteLength <= maxBytes) {
      const count = this.#countJoinable(index, maxBytes);
      return count === 1 ? data : this.#join(index, count);
    }
    return data.subarray(offset - start, offset - start + maxBytes);
  }

  /** How many pieces from `index` on make one read: several only when the first is small. */
  #countJoinable(index: number, maxBytes: number): number {
    const most = Math.min(maxBytes, JOIN_MAX_BYTES);
    let bytes = this.#pieces[index]!.data.byteLength;
    if (bytes >= JOIN_BELOW_BYTES) return 1;
    let next = index + 1;
    for (; next < this.#pieces.length; next++) {
      const size = this.#pieces[next]!.data.byteLength;
      if (size >= JOIN_BELOW_BYTES || bytes + size > most) break;
      bytes += size;
    }
    return next - index;
  }

  #join(index: number, count: number): Uint8Array {
    const last = this.#pieces[index + count - 1]!;
    const { start } = this.#pieces[index]!;
    const joined = new Uint8Array(last.start + last.data.byteLength - start);
    for (let i = index; i < index + count; i++) {
      const piece = this.#pieces[i]!;
      joined.set(piece.data, piece.start - start);
    }
    return joined;
  }

  /** The piece that holds `offset`: the last one in most cases, by halving otherwise. */
  #indexOf(offset: number): number {
    let low = 0;
    let high = this.#pieces.length - 1;
    if (this.#pieces[high]!.start <= offset) return high;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#pieces[middle]!.start <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #weigh(change: number): void {
    this.#weight += change;
    this.#budget.used += change;
  }
}
