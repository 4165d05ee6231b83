// A transport as a node stream, which is what node:http2 and node:tls want.
// Must not import gRPC. Joins writes, keeps back-pressure both ways, and ends with its peer.
import { Duplex } from "node:stream";
import type { Clock, Timer } from "../clock.ts";
import { END_STREAM, HEADERS, RST_STREAM, streamOf } from "./frame_inspector.ts";
import type { Transport } from "./transport.ts";

/** What may look at the inbound bytes; an answer other than undefined closes the connection. */
export type Inspector = (bytes: Uint8Array) => string | undefined;

/** What waits on a connection for the kernel, and who waits for that to become less. */
export interface Backlog {
  /** Whether so much waits that nothing more should be made. */
  readonly isFull: boolean;
  /** Calls `resume` once, when that is over or the connection is closed, unless cancelled before. */
  whenDrained(resume: () => void): void;
  /** Takes back {@linkcode Backlog.whenDrained}. */
  cancel(resume: () => void): void;
}

/** Options of {@linkcode ConnectionDuplex}. */
export interface ConnectionDuplexOptions {
  readonly clock: Clock;
  /** Bytes read while sniffing, to be read again. */
  readonly first?: Uint8Array;
  readonly inspect?: Inspector;
  /**
   * For a session of node:http2, not for TLS: it is done with what it reads when the event `data` is over, so
   * that the memory can be used again, and what it writes are whole frames, those of an answer apart.
   */
  readonly isHttp2?: boolean;
  /** Told how many bytes went out. */
  readonly onSent?: (bytes: number) => void;
  /** The inspector has had enough, for that reason. */
  readonly onFault?: (fault: string) => void;
}

/** Milliseconds between the peer's end and ours: time for the last frames. */
const CLOSE_AFTER_EOF_MS = 100;
/** Most bytes joined into one write. */
const MAX_JOINED_BYTES = 256 * 1024;
/**
 * Turns of the event loop that frames wait for those that follow: node:http2 gives the headers of an answer
 * at once, its message at the end of the turn, its trailers two turns later. A turn with nothing else to
 * do takes some ten microseconds; a write to the kernel, which wakes the peer, takes as long as all three.
 */
const TURNS_HELD = 3;
/** RFC 9113 section 4.1; node:http2 writes one frame at a time. */
const FRAME_HEADER_BYTES = 9;
const FRAME_TYPE_AT = 3;
const FRAME_FLAGS_AT = 4;

/**
 * Bytes that wait for the kernel, from which on calls make nothing more, until half of them are gone.
 * node:http2 does not wait when told to: it takes from all calls whatever the peer's window allows, and a
 * peer may allow 2 GiB and read none of it.
 */
const BACKLOG_BYTES = 512 * 1024;

/** Bytes that wait in the stream before node:http2 is told to wait. */
const WRITE_HIGH_WATER_BYTES = 128 * 1024;

/** See the head of this file. */
export class ConnectionDuplex extends Duplex implements Backlog {
  readonly remoteAddress: string;
  readonly remotePort: number | undefined;
  readonly #transport: Transport;
  readonly #options: ConnectionDuplexOptions;
  #first: Uint8Array | undefined;
  #reading = false;
  #closing: Timer | undefined;
  #joined: Uint8Array | undefined;
  /** Set while frames are held back. */
  #releasing: ReturnType<typeof setImmediate> | undefined;
  #heldBytes = 0;
  /** HTTP/2 streams whose answer has begun and not ended. */
  readonly #openAnswers = new Set<number>();
  #waiting = new Set<() => void>();

  constructor(transport: Transport, options: ConnectionDuplexOptions) {
    super({
      allowHalfOpen: true,
      writableHighWaterMark: WRITE_HIGH_WATER_BYTES,
      decodeStrings: true,
    });
    this.#transport = transport;
    this.#options = options;
    this.#first = options.first;
    this.remoteAddress = transport.remote.address;
    this.remotePort = transport.remote.port;
    // A lost connection is nothing to report; without a listener it would end the process.
    this.on("error", () => {});
  }

  override _read(): void {
    if (this.#reading) return;
    this.#reading = true;
    this.#pump();
  }

  async #pump(): Promise<void> {
    try {
      for (let more = true; more && !this.destroyed;) {
        const bytes = this.#first ?? await this.#transport.read();
        this.#first = undefined;
        if (this.destroyed) return;
        if (bytes === null) {
          this.push(null);
          // node:http2 keeps a session whose peer has only half closed, for ever.
          this.#closing = this.#options.clock.setTimer(CLOSE_AFTER_EOF_MS, () => this.destroy());
          return;
        }
        const fault = this.#options.inspect?.(bytes);
        if (fault !== undefined) {
          this.#options.onFault?.(fault);
          return;
        }
        more = this.push(bytes);
        // What nobody listened for is in the stream's own buffer.
        if (this.#options.isHttp2 && this.readableLength === 0) {
          this.#transport.recycle?.(bytes);
        }
      }
    } catch (error) {
      this.destroy(error as Error);
    } finally {
      this.#reading = false;
    }
  }

  /** Holds back what is written for a moment: an answer then leaves in one write instead of three. */
  override write(chunk: Uint8Array, encoding?: unknown, done?: unknown): boolean {
    if (!this.#options.isHttp2) {
      return super.write(chunk, encoding as BufferEncoding, done as () => void);
    }
    if (this.#releasing === undefined) this.cork();
    this.#heldBytes += chunk.length;
    const takesMore = super.write(chunk, encoding as BufferEncoding, done as () => void);
    const isComplete = this.#endsLastAnswer(chunk);
    if (isComplete || this.#heldBytes >= MAX_JOINED_BYTES) this.#release();
    else if (this.#releasing === undefined) this.#releaseLater(TURNS_HELD);
    return takesMore;
  }

  /** Whether `frame` ends an answer and no other one has begun: there is nothing to wait for. */
  #endsLastAnswer(frame: Uint8Array): boolean {
    const type = frame[FRAME_TYPE_AT]!;
    if (type > RST_STREAM || frame.length < FRAME_HEADER_BYTES) return false;
    const stream = streamOf(frame);
    if (type === RST_STREAM || (frame[FRAME_FLAGS_AT]! & END_STREAM) !== 0) {
      return this.#openAnswers.delete(stream) && this.#openAnswers.size === 0;
    }
    if (type === HEADERS) this.#openAnswers.add(stream);
    return false;
  }

  /** The client gave up `stream`: its answer will not be ended. */
  abandonAnswer(stream: number): void {
    this.#openAnswers.delete(stream);
  }

  #releaseLater(turns: number): void {
    this.#releasing = setImmediate(() => {
      if (turns > 1) this.#releaseLater(turns - 1);
      else this.#release();
    });
  }

  #release(): void {
    clearImmediate(this.#releasing);
    this.#releasing = undefined;
    this.#heldBytes = 0;
    this.uncork();
  }

  /** The last frames, such as a GOAWAY, are given to the transport first. */
  override destroy(error?: Error): this {
    if (this.#releasing !== undefined) this.#release();
    return super.destroy(error);
  }

  override _write(
    chunk: Uint8Array,
    _encoding: string,
    done: (error?: Error | null) => void,
  ): void {
    this.#send(chunk).then(() => this.#sent(done), done);
  }

  override _writev(
    chunks: { chunk: Uint8Array }[],
    done: (error?: Error | null) => void,
  ): void {
    this.#sendJoined(chunks).then(() => this.#sent(done), done);
  }

  /** What waited in one write is sent. */
  #sent(done: () => void): void {
    done();
    if (this.writableLength <= BACKLOG_BYTES / 2) this.#resumeCalls();
  }

  get isFull(): boolean {
    return this.writableLength > BACKLOG_BYTES && !this.destroyed;
  }

  whenDrained(resume: () => void): void {
    this.#waiting.add(resume);
  }

  cancel(resume: () => void): void {
    this.#waiting.delete(resume);
  }

  #resumeCalls(): void {
    if (this.#waiting.size === 0) return;
    const waiting = this.#waiting;
    this.#waiting = new Set();
    for (const resume of waiting) resume();
  }

  /** A download comes as many 16 KiB frames: joining them saves most of the system calls. */
  async #sendJoined(chunks: { chunk: Uint8Array }[]): Promise<void> {
    let used = 0;
    for (const { chunk } of chunks) {
      if (used + chunk.length > MAX_JOINED_BYTES && used > 0) {
        await this.#send(this.#joined!.subarray(0, used));
        used = 0;
      }
      if (chunk.length > MAX_JOINED_BYTES) {
        await this.#send(chunk);
        continue;
      }
      // Only one write is under way at a time, so one buffer per connection does.
      this.#joined ??= new Uint8Array(MAX_JOINED_BYTES);
      this.#joined.set(chunk, used);
      used += chunk.length;
    }
    if (used > 0) await this.#send(this.#joined!.subarray(0, used));
  }

  async #send(bytes: Uint8Array): Promise<void> {
    await this.#transport.write(bytes);
    this.#options.onSent?.(bytes.length);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#transport.closeWrite().then(() => done(), () => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#closing?.cancel();
    this.#transport.close();
    this.#joined = undefined;
    this.#resumeCalls();
    done(error);
  }

  // What grpc-js and node:http2 call on a socket, and what needs no doing here.
  setTimeout(): this {
    return this;
  }
  setNoDelay(): this {
    return this;
  }
  setKeepAlive(): this {
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
}
