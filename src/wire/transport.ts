// A byte stream to one peer, as the sniffing and both protocols see it.
// Must not import gRPC, HTTP/2 or node streams.
import { countMoved } from "../buffer_garbage.ts";

/** Bytes to and from one peer. One read and one write at a time. */
export interface Transport {
  /** Address for the log: `ip:port`, or `unix`. */
  readonly peer: string;
  /** What a gRPC call reports as the remote address and port. */
  readonly remote: { readonly address: string; readonly port: number | undefined };
  /** The next bytes, never empty; null at the peer's end. The caller owns them. */
  read(): Promise<Uint8Array | null>;
  /** Takes back what {@linkcode read} brought last, for a later read. Only where nobody holds it any more. */
  recycle?(bytes: Uint8Array): void;
  /** Resolves when all bytes are taken by the kernel; they must not change before. */
  write(bytes: Uint8Array): Promise<void>;
  /** Ends our half. */
  closeWrite(): Promise<void>;
  /** Ends both halves at once; pending reads and writes fail. Twice does nothing. */
  close(): void;
}

/** One read's worth: large enough that an upload needs few of them. */
const READ_BYTES = 64 * 1024;
/** Pieces smaller than this are copied out, so that they do not hold a whole read buffer. */
const COPY_BELOW_BYTES = 16 * 1024;

/** A connection of `Deno.listen`. */
export class DenoTransport implements Transport {
  readonly peer: string;
  readonly remote: Transport["remote"];
  readonly #conn: Deno.Conn;
  /** For the next read. */
  #buffer: Uint8Array<ArrayBuffer> | undefined;
  /** Out in the last read. */
  #lent: Uint8Array<ArrayBuffer> | undefined;
  #closed = false;

  constructor(conn: Deno.Conn) {
    this.#conn = conn;
    const address = conn.remoteAddr;
    if (address.transport === "tcp") {
      // Without it a small answer waits for the acknowledgement of the one before: 40 ms.
      (conn as Deno.TcpConn).setNoDelay(true);
      const host = address.hostname.includes(":") ? `[${address.hostname}]` : address.hostname;
      this.peer = `${host}:${address.port}`;
      this.remote = { address: address.hostname, port: address.port };
    } else {
      this.peer = "unix";
      this.remote = { address: "unix", port: undefined };
    }
  }

  async read(): Promise<Uint8Array | null> {
    const buffer = this.#buffer ?? new Uint8Array(READ_BYTES);
    this.#buffer = undefined;
    // Not given back by now, it is somebody else's.
    this.#lent = undefined;
    const count = await this.#conn.read(buffer);
    if (count === null) return null;
    countMoved(count);
    if (count >= COPY_BELOW_BYTES) {
      this.#lent = buffer;
      return buffer.subarray(0, count);
    }
    this.#buffer = buffer;
    return buffer.slice(0, count);
  }

  recycle(bytes: Uint8Array): void {
    if (this.#lent?.buffer !== bytes.buffer) return;
    this.#buffer = this.#lent;
    this.#lent = undefined;
  }

  async write(bytes: Uint8Array): Promise<void> {
    countMoved(bytes.length);
    for (let at = 0; at < bytes.length;) {
      at += await this.#conn.write(at === 0 ? bytes : bytes.subarray(at));
    }
  }

  async closeWrite(): Promise<void> {
    await this.#conn.closeWrite();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      this.#conn.close();
    } catch {
      // The runtime closed it already.
    }
  }
}
