// A cursor over one stream. Holds an offset and nothing else: no buffer, no descriptor.
// Must not import process/, rpc/ or gRPC.
import type { StreamSpool } from "./stream_spool.ts";

/** Reads a stream from an offset on; one read at a time. Made by `StreamSpool.openReader`. */
export class SpoolReader implements Disposable {
  readonly #spool: StreamSpool;
  readonly #following: boolean;
  #offset: number;
  #disposed = false;

  constructor(spool: StreamSpool, offset: number, following: boolean) {
    this.#spool = spool;
    this.#offset = offset;
    this.#following = following;
    if (following) spool.addFollower();
  }

  /** Offset of the next byte to be read. */
  get offset(): number {
    return this.#offset;
  }

  /** Whether there is something to read. */
  get hasMore(): boolean {
    return this.#offset < this.#spool.endOffset;
  }

  /** Whether the next read comes from disk. */
  get isBehind(): boolean {
    return this.#offset < this.#spool.tailStart;
  }

  /**
   * The next bytes, at most `maxBytes`, not to be modified; null at the end (for now).
   * Synchronous from memory, a promise from disk.
   * @throws AgentError `out-of-range` when the offset is not kept (any more)
   */
  read(maxBytes: number): Uint8Array | null | Promise<Uint8Array> {
    const data = this.#spool.readAt(this.#offset, maxBytes);
    if (data instanceof Promise) return this.#advanceAfter(data);
    if (data !== null) this.#offset += data.byteLength;
    return data;
  }

  async #advanceAfter(reading: Promise<Uint8Array>): Promise<Uint8Array> {
    const data = await reading;
    this.#offset += data.byteLength;
    return data;
  }

  [Symbol.dispose](): void {
    if (this.#disposed) return;
    this.#disposed = true;
    if (this.#following) this.#spool.removeFollower();
  }
}
