// HTTP/2 by hand, for what no client library would send. RFC 9113; headers without HPACK's table.

const encoder = new TextEncoder();

/** What a client sends first. */
export const PREFACE = encoder.encode("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

export const DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7;
export const CONTINUATION = 9;
export const END_STREAM = 0x1, ACK = 0x1, END_HEADERS = 0x4;

/** One frame. */
export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Uint8Array = new Uint8Array(),
): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(9 + payload.length);
  new DataView(bytes.buffer).setUint32(0, payload.length << 8 | type);
  bytes[4] = flags;
  new DataView(bytes.buffer).setUint32(5, stream);
  bytes.set(payload, 9);
  return bytes;
}

/** Literal header fields, never indexed. Lengths up to 126. */
export function headerBlock(fields: Readonly<Record<string, string>>): Uint8Array {
  return Uint8Array.from(
    Object.entries(fields).flatMap(([name, value]) => [
      0x10,
      name.length,
      ...encoder.encode(name),
      value.length,
      ...encoder.encode(value),
    ]),
  );
}

/** The headers of a call of `path`. */
export function callHeaders(
  path: string,
  more: Readonly<Record<string, string>> = {},
): Uint8Array {
  return headerBlock({
    ":method": "POST",
    ":scheme": "http",
    ":path": path,
    ":authority": "test",
    "content-type": "application/grpc",
    "te": "trailers",
    ...more,
  });
}

/** A gRPC message in its envelope. */
export function envelope(payload: Uint8Array, flag = 0, length = payload.length): Uint8Array {
  const bytes = new Uint8Array(5 + payload.length);
  bytes[0] = flag;
  new DataView(bytes.buffer).setUint32(1, length);
  bytes.set(payload, 5);
  return bytes;
}

/** A frame as it was received. */
export interface ReceivedFrame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Uint8Array;
}

/** A connection that has sent the preface and its settings. */
export class RawConnection implements Disposable {
  readonly conn: Deno.Conn;
  #buffer = new Uint8Array();

  private constructor(conn: Deno.Conn) {
    this.conn = conn;
  }

  static async open(address: string, hello = true): Promise<RawConnection> {
    const [hostname = "", port] = address.split(":");
    const raw = new RawConnection(await Deno.connect({ hostname, port: Number(port) }));
    if (hello) {
      await raw.send(PREFACE);
      await raw.send(frame(SETTINGS, 0, 0));
    }
    return raw;
  }

  /** Sends; false where the connection is gone. */
  async send(bytes: Uint8Array): Promise<boolean> {
    try {
      for (let at = 0; at < bytes.length;) at += await this.conn.write(bytes.subarray(at));
      return true;
    } catch {
      return false;
    }
  }

  /** Sends `bytes` `times` times, or until the connection is gone, and waits until it is. */
  async flood(bytes: Uint8Array, times: number): Promise<void> {
    // The server's words must be read, or its own writes would block it.
    const closed = this.untilClosed();
    const batch = new Uint8Array(bytes.length * 50);
    for (let i = 0; i < 50; i++) batch.set(bytes, i * bytes.length);
    for (let sent = 0; sent < times && await this.send(batch); sent += 50);
    await closed;
  }

  /** The next frame; undefined at the end of the connection. */
  async receive(): Promise<ReceivedFrame | undefined> {
    for (;;) {
      const view = new DataView(this.#buffer.buffer, this.#buffer.byteOffset);
      const length = this.#buffer.length < 9 ? Infinity : view.getUint32(0) >>> 8;
      if (this.#buffer.length >= 9 + length) {
        const received = {
          type: this.#buffer[3]!,
          flags: this.#buffer[4]!,
          stream: view.getUint32(5),
          payload: this.#buffer.slice(9, 9 + length),
        };
        this.#buffer = this.#buffer.slice(9 + length);
        return received;
      }
      const bytes = new Uint8Array(65_536);
      const count = await this.conn.read(bytes).catch(() => null);
      if (count === null) return undefined;
      const joined = new Uint8Array(this.#buffer.length + count);
      joined.set(this.#buffer);
      joined.set(bytes.subarray(0, count), this.#buffer.length);
      this.#buffer = joined;
    }
  }

  /** All that comes until the server closes; types of the frames. */
  async untilClosed(): Promise<number[]> {
    const types: number[] = [];
    for (let next; (next = await this.receive()) !== undefined;) types.push(next.type);
    return types;
  }

  [Symbol.dispose](): void {
    try {
      this.conn.close();
    } catch {
      // The server was first.
    }
  }
}
