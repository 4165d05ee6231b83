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

/** Follows the message boundaries of a request without copying any of it. */
export class MessageFraming {
  /** Bytes seen, prefixes included. */
  bytes = 0;
  /** Messages seen to their end. */
  messages = 0;
  #prefixSeen = 0;
  #length = 0;
  #left = 0;
  #pieces = 0;

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
        this.#prefixSeen = 0;
        this.#pieces = 0;
      }
    }
    return this.#pieces > maxPieces(this.#length) ? "pieces" : undefined;
  }
}
