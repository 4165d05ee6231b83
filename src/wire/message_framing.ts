// Watches the length-prefixed messages of one request stream (1 byte flag, 4 bytes length, payload).
// Pure; must not import gRPC or HTTP/2.

/** Why the bytes of a request are no sequence of messages. */
export type FramingFault = "flag" | "pieces";

/**
 * Most pieces that a message of `bytes` bytes may come in. Every piece costs an object until its message
 * is whole: 16 MiB in one-byte DATA frames would cost more than 1 GiB. Honest peers send whole frames.
 */
function maxPieces(bytes: number): number {
  return 256 + bytes / 256;
}

/** The most that deflate can grow: a bomb of 15 KiB is a message of 15 MiB. */
const MOST_INFLATION = 1032;
/** What a waiting message costs beside its bytes. */
const MESSAGE_OVERHEAD_BYTES = 256;

/** Follows the message boundaries of a request without copying any of it. */
export class MessageFraming {
  /** Bytes seen, prefixes included. */
  bytes = 0;
  /** Messages seen to their end. */
  messages = 0;
  /** Told when a message was taken, and what it cost in memory, in bytes. */
  onTaken: ((cost: number) => void) | undefined;
  #prefixSeen = 0;
  #length = 0;
  #left = 0;
  #pieces = 0;
  #compressed = false;
  readonly #maxMessageBytes: number;
  /** What the messages cost that were seen to their end and not taken yet, the oldest first. */
  #waiting: number[] = [];
  #waitingFrom = 0;
  #waitingBytes = 0;

  /** Messages beyond `maxMessageBytes` are refused by others, and cost no more than that here. */
  constructor(maxMessageBytes: number) {
    this.#maxMessageBytes = maxMessageBytes;
  }

  /** What the messages that nobody has taken cost in memory, or will once they are inflated. */
  get heldBytes(): number {
    return this.#waitingBytes + (this.#prefixSeen < 5 ? 0 : this.#cost(this.#length - this.#left));
  }

  /** The oldest message was taken. */
  messageTaken(): void {
    if (this.#waitingFrom >= this.#waiting.length) return;
    const cost = this.#waiting[this.#waitingFrom++]!;
    this.#waitingBytes -= cost;
    if (this.#waitingFrom === this.#waiting.length) {
      this.#waiting = [];
      this.#waitingFrom = 0;
    }
    this.onTaken?.(cost);
  }

  /** False inside a message: the stream must not end here. */
  get complete(): boolean {
    return this.#prefixSeen === 0;
  }

  /** Takes the next piece of the stream; the fault, if these bytes show one. */
  push(piece: Uint8Array): FramingFault | undefined {
    this.bytes += piece.length;
    this.#pieces++;
    let at = 0;
    while (at < piece.length) {
      if (this.#prefixSeen < 5) {
        const byte = piece[at++]!;
        if (this.#prefixSeen === 0) {
          if (byte > 1) return "flag";
          this.#length = 0;
          this.#compressed = byte === 1;
        } else {
          this.#length = this.#length * 256 + byte;
        }
        if (++this.#prefixSeen < 5) continue;
        this.#left = this.#length;
      } else {
        const taken = Math.min(this.#left, piece.length - at);
        at += taken;
        this.#left -= taken;
      }
      if (this.#left === 0) {
        this.messages++;
        const cost = this.#cost(this.#length);
        this.#waiting.push(cost);
        this.#waitingBytes += cost;
        this.#prefixSeen = 0;
        this.#pieces = 0;
      }
    }
    return this.#pieces > maxPieces(this.#length) ? "pieces" : undefined;
  }
  #cost(bytes: number): number {
    const inflated = this.#compressed ? bytes * MOST_INFLATION : bytes;
    return MESSAGE_OVERHEAD_BYTES + Math.min(this.#maxMessageBytes, inflated);
  }
}
