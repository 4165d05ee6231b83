// A TCP connection on which anything can be sent, and on which the frames that come back are read.
// Must not import the product.
import { FRAME, join } from "./frames.ts";

/** A frame that came back. */
export interface ReceivedFrame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Uint8Array;
}

/** See the head of this file. One reader at a time. */
export class RawConnection implements Disposable {
  readonly #conn: Deno.TcpConn;
  readonly #buffer = new Uint8Array(64 * 1024);
  #unread = new Uint8Array(0);

  private constructor(conn: Deno.TcpConn) {
    this.#conn = conn;
    conn.setNoDelay(true);
  }

  /** `address` is `host:port`. */
  static async open(address: string): Promise<RawConnection> {
    const { hostname, port } = new URL(`http://${address}`);
    return new RawConnection(await Deno.connect({ hostname, port: Number(port) }));
  }

  /** Sends all of it; false where the peer does not take it any more. */
  async send(bytes: Uint8Array): Promise<boolean> {
    try {
      for (let at = 0; at < bytes.length;) at += await this.#conn.write(bytes.subarray(at));
      return true;
    } catch {
      return false;
    }
  }

  /** Ends our half. */
  async endWrite(): Promise<void> {
    // A connection that was reset has no half left.
    await this.#conn.closeWrite().catch(() => {});
  }

  /** The next frame; undefined at the end, however it came. */
  async nextFrame(): Promise<ReceivedFrame | undefined> {
    while (this.#unread.length < 9 || this.#unread.length < 9 + this.#frameLength()) {
      const bytes = await this.#read();
      if (bytes === undefined) return undefined;
      this.#unread = join(this.#unread, bytes);
    }
    const length = this.#frameLength();
    const view = new DataView(this.#unread.buffer, this.#unread.byteOffset);
    const received = {
      type: view.getUint8(3),
      flags: view.getUint8(4),
      stream: view.getUint32(5) & 0x7fffffff,
      payload: this.#unread.slice(9, 9 + length),
    };
    this.#unread = this.#unread.subarray(9 + length);
    return received;
  }

  /** Reads until `isWanted` of a frame; false where the connection ended before. */
  async waitFrame(isWanted: (frame: ReceivedFrame) => boolean): Promise<boolean> {
    for (;;) {
      const received = await this.nextFrame();
      if (received === undefined) return false;
      if (isWanted(received)) return true;
    }
  }

  /** Throws away what comes, until the peer ends; the number of bytes. */
  async drain(): Promise<number> {
    for (let count = this.#unread.length;;) {
      const bytes = await this.#read();
      if (bytes === undefined) return count;
      count += bytes.length;
    }
  }

  [Symbol.dispose](): void {
    try {
      this.#conn.close();
    } catch {
      // The runtime closed it already.
    }
  }

  #frameLength(): number {
    const [a = 0, b = 0, c = 0] = this.#unread;
    return a << 16 | b << 8 | c;
  }

  async #read(): Promise<Uint8Array | undefined> {
    try {
      const count = await this.#conn.read(this.#buffer);
      return count === null ? undefined : this.#buffer.slice(0, count);
    } catch {
      return undefined;
    }
  }
}

/** Whether a frame ends the answer on `stream`. */
export function endsStream(stream: number): (frame: ReceivedFrame) => boolean {
  return (received) =>
    received.stream === stream &&
    (received.type === FRAME.rstStream ||
      (received.type === FRAME.headers || received.type === FRAME.data) &&
        (received.flags & 1) !== 0);
}
