// The first bytes of a connection -> the protocol that it speaks.
// Must not import gRPC or HTTP/2.
import type { Transport } from "./transport.ts";

/** What a connection speaks. */
export type Protocol = "http2" | "http1" | "garbage";

const PREFACE = new TextEncoder().encode("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

/** Longest method name of HTTP/1.1 that is waited for. */
const MAX_METHOD_BYTES = 16;

/** The protocol of a connection that begins with `bytes`; undefined where they are too few to say. */
export function protocolOf(bytes: Uint8Array): Protocol | undefined {
  const compared = Math.min(bytes.length, PREFACE.length);
  let same = 0;
  while (same < compared && bytes[same] === PREFACE[same]) same++;
  if (same === PREFACE.length) return "http2";
  if (same === bytes.length) return undefined;
  // "PRI * HTTP/2.0" and then something else is no HTTP/1.1 request either.
  if (same >= 4) return "garbage";
  for (let i = 0; i < Math.min(bytes.length, MAX_METHOD_BYTES); i++) {
    const byte = bytes[i]!;
    if (byte === 0x20) return i > 0 ? "http1" : "garbage";
    if (byte < 0x41 || byte > 0x5a) return "garbage";
  }
  return bytes.length < MAX_METHOD_BYTES ? undefined : "garbage";
}

/** Reads until the protocol is known; undefined at the peer's end. Returns all bytes read. */
export async function sniff(
  transport: Transport,
): Promise<{ protocol: Protocol; first: Uint8Array } | undefined> {
  let first = new Uint8Array(0);
  for (;;) {
    const bytes = await transport.read();
    if (bytes === null) return undefined;
    if (first.length === 0) {
      first = bytes as Uint8Array<ArrayBuffer>;
    } else {
      const joined = new Uint8Array(first.length + bytes.length);
      joined.set(first);
      joined.set(bytes, first.length);
      first = joined;
    }
    const protocol = protocolOf(first);
    if (protocol !== undefined) return { protocol, first };
  }
}
