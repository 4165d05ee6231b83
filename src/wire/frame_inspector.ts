// Counts the HTTP/2 frames of a client and says when they are an attack and not a conversation.
// Pure but for the clock; must not import HTTP/2 or gRPC. RFC 9113 section 10.5 lists the attacks.
import type { Clock } from "../clock.ts";

const DATA = 0;
export const HEADERS = 1;
export const RST_STREAM = 3;
const SETTINGS = 4;
const PING = 6;
const WINDOW_UPDATE = 8;
const CONTINUATION = 9;

export const END_STREAM = 0x1;
const ACK = 0x1;
const END_HEADERS = 0x4;
const PADDED = 0x8;

/** Length of the client's preface, `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`, which comes before the frames. */
export const PREFACE_BYTES = 24;

/** What one kind of frame may cost: so many at once, and so many more each second. */
interface Allowance {
  readonly burst: number;
  readonly perSecond: number;
  /** Whether bytes that we sent allow more of them: peers answer data with window updates and pings. */
  readonly earned: boolean;
}

/** Generous: an honest client stays a factor of ten away, a flood is over within a few thousand frames. */
const ALLOWANCES = {
  // Clients cancel calls; routers do so for all calls of a connection at once.
  "RST_STREAM": { burst: 2_000, perSecond: 500, earned: false },
  // grpc-go measures the bandwidth with a ping per batch of data that it received.
  "PING": { burst: 500, perSecond: 50, earned: true },
  // grpc-go changes its window a few times in the life of a connection.
  "SETTINGS": { burst: 50, perSecond: 2, earned: false },
  "empty DATA": { burst: 500, perSecond: 50, earned: false },
  "WINDOW_UPDATE": { burst: 20_000, perSecond: 20_000, earned: true },
  // PRIORITY, unknown types and whatever else carries no call.
  "other": { burst: 1_000, perSecond: 100, earned: false },
} as const satisfies Record<string, Allowance>;

type Kind = keyof typeof ALLOWANCES;

/**
 * nghttp2 drops a connection, with all its calls, after 1,000 RST_STREAM and 33 more a second, and Deno
 * passes no other limit to it. A client that cancels so much gets another connection before that.
 */
const WORN_OUT: Allowance = { burst: 600, perSecond: 30, earned: false };

/** Most CONTINUATION frames, and most bytes, of one compressed header block. */
const MAX_CONTINUATIONS = 8;
const MAX_HEADER_BLOCK_BYTES = 64 * 1024;
/** The largest frame that we allow (SETTINGS_MAX_FRAME_SIZE, its default). */
const MAX_FRAME_BYTES = 16 * 1024;
/** Bytes sent that allow one more answering frame. */
const BYTES_PER_EARNED = 1024;

/** Id of the stream that a frame belongs to; the reserved bit before it is not looked at (RFC 9113, 4.1). */
export function streamOf(frame: Uint8Array): number {
  return (frame[5]! & 0x7f) << 24 | frame[6]! << 16 | frame[7]! << 8 | frame[8]!;
}

/** A DATA frame that carries nothing, or may carry nothing but padding (at most 256 bytes of it). */
function isHollow(length: number, flags: number): boolean {
  return (flags & END_STREAM) === 0 && (length === 0 || (length <= 256 && (flags & PADDED) !== 0));
}

class Bucket {
  #left: number;
  #atMs: number;
  readonly #allowance: Allowance;

  constructor(allowance: Allowance, nowMs: number) {
    this.#allowance = allowance;
    this.#left = allowance.burst;
    this.#atMs = nowMs;
  }

  take(nowMs: () => number): boolean {
    if (--this.#left >= 0) return true;
    const now = nowMs();
    const refill = (now - this.#atMs) / 1000 * this.#allowance.perSecond;
    this.#atMs = now;
    this.#left = Math.min(this.#allowance.burst, this.#left + refill);
    return this.#left >= 0;
  }

  earn(count: number): void {
    this.#left = Math.min(this.#allowance.burst, this.#left + count);
  }
}

/** One connection's frames. Looks only at the nine bytes before each payload. */
export class FrameInspector {
  readonly #clock: Clock;
  readonly #onWornOut: () => void;
  readonly #onReset: (stream: number) => void;
  readonly #buckets = new Map<Kind, Bucket>();
  readonly #resets: Bucket;
  #wornOut = false;
  /** Bytes to pass over: first the preface, then the payload of the frame under way. */
  #skip = PREFACE_BYTES;
  #header = new Uint8Array(9);
  #headerBytes = 0;
  #continuations = -1;
  #blockBytes = 0;

  /**
   * `onWornOut` is called once, when the connection should be replaced by another one; `onReset` whenever
   * the client gives up a call, before anybody else sees that.
   */
  constructor(
    clock: Clock,
    onWornOut: () => void = () => {},
    onReset: (stream: number) => void = () => {},
  ) {
    this.#clock = clock;
    this.#onWornOut = onWornOut;
    this.#onReset = onReset;
    this.#resets = new Bucket(WORN_OUT, clock.nowMs());
  }

  /** Bytes that went out to the client. */
  sent(bytes: number): void {
    for (const [kind, bucket] of this.#buckets) {
      // Each write is at least one frame, however small.
      if (ALLOWANCES[kind].earned) bucket.earn(1 + bytes / BYTES_PER_EARNED);
    }
  }

  /** Takes the next inbound bytes; what is wrong with them, or undefined. */
  inspect(bytes: Uint8Array): string | undefined {
    let at = 0;
    while (at < bytes.length) {
      if (this.#skip > 0) {
        const passed = Math.min(this.#skip, bytes.length - at);
        this.#skip -= passed;
        at += passed;
        continue;
      }
      this.#header[this.#headerBytes++] = bytes[at++]!;
      if (this.#headerBytes < 9) continue;
      this.#headerBytes = 0;
      const header = this.#header;
      const length = header[0]! << 16 | header[1]! << 8 | header[2]!;
      const fault = this.#frame(length, header[3]!, header[4]!);
      if (fault !== undefined) return fault;
      this.#skip = length;
    }
    return undefined;
  }

  #frame(length: number, type: number, flags: number): string | undefined {
    if (length > MAX_FRAME_BYTES) return "frame too large";
    if (this.#continuations >= 0 && type !== CONTINUATION) return "header block interrupted";
    switch (type) {
      case DATA:
        return isHollow(length, flags) ? this.#charge("empty DATA") : undefined;
      case HEADERS:
        this.#continuations = flags & END_HEADERS ? -1 : 0;
        this.#blockBytes = length;
        return undefined;
      case CONTINUATION:
        if (this.#continuations < 0) return "CONTINUATION without HEADERS";
        this.#blockBytes += length;
        if (
          ++this.#continuations > MAX_CONTINUATIONS || this.#blockBytes > MAX_HEADER_BLOCK_BYTES
        ) {
          return "header block too long";
        }
        if (flags & END_HEADERS) this.#continuations = -1;
        return undefined;
      case RST_STREAM:
        this.#onReset(streamOf(this.#header));
        if (!this.#wornOut && !this.#resets.take(() => this.#clock.nowMs())) {
          this.#wornOut = true;
          this.#onWornOut();
        }
        return this.#charge("RST_STREAM");
      case SETTINGS:
        return flags & ACK ? this.#charge("other") : this.#charge("SETTINGS");
      case PING:
        return flags & ACK ? this.#charge("other") : this.#charge("PING");
      case WINDOW_UPDATE:
        return this.#charge("WINDOW_UPDATE");
      default:
        return this.#charge("other");
    }
  }

  #charge(kind: Kind): string | undefined {
    let bucket = this.#buckets.get(kind);
    if (bucket === undefined) {
      bucket = new Bucket(ALLOWANCES[kind], this.#clock.nowMs());
      this.#buckets.set(kind, bucket);
    }
    return bucket.take(() => this.#clock.nowMs()) ? undefined : `too many ${kind} frames`;
  }
}
