// Which writes of a connection reach the kernel as one.
import { assertEquals } from "@std/assert";
import { systemClock } from "../../../src/clock.ts";
import { ConnectionDuplex } from "../../../src/wire/connection_duplex.ts";
import type { Transport } from "../../../src/wire/transport.ts";

/** A transport that takes everything and remembers the writes. */
class RecordingTransport implements Transport {
  readonly peer = "test";
  readonly remote = { address: "test", port: undefined };
  readonly writes: string[] = [];
  #isClosed = false;
  #waiting: { bytes: number; resolve: () => void } | undefined;
  #bytes = 0;
  #held = Promise.resolve();

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Resolves once so many bytes were written. */
  taken(bytes: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting = { bytes, resolve };
      this.#look();
    });
  }

  #look(): void {
    if (this.#waiting !== undefined && this.#bytes >= this.#waiting.bytes) this.#waiting.resolve();
  }

  read(): Promise<Uint8Array | null> {
    return new Promise(() => {});
  }

  /** Lets no write end until the returned function is called. */
  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#held = promise;
    return resolve;
  }

  write(bytes: Uint8Array): Promise<void> {
    if (this.#isClosed) throw new Error("Cannot write: the transport is closed");
    // The bytes may change when this has resolved.
    this.writes.push(new TextDecoder().decode(bytes.slice()));
    this.#bytes += bytes.length;
    this.#look();
    return this.#held;
  }

  closeWrite(): Promise<void> {
    return Promise.resolve();
  }

  close(): void {
    this.#isClosed = true;
  }
}

function open(isHttp2 = true) {
  const transport = new RecordingTransport();
  return { transport, duplex: new ConnectionDuplex(transport, { clock: systemClock, isHttp2 }) };
}

const DATA = 0;
const HEADERS = 1;
const RST_STREAM = 3;
const PING = 6;
const END_STREAM = 1;

/** A frame with `text` as its payload. RFC 9113 section 4.1. */
function frame(type: number, flags: number, stream: number, text: string): Uint8Array {
  const payload = new TextEncoder().encode(text);
  const bytes = new Uint8Array(9 + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint16(1, payload.length);
  view.setUint8(3, type);
  view.setUint8(4, flags);
  view.setUint32(5, stream);
  bytes.set(payload, 9);
  return bytes;
}

/** The payloads in a write that {@linkcode frame} made. */
function payloads(write: string): string[] {
  return [...write.matchAll(/[a-z]+/g)].map(([text]) => text);
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Writes what an answer is made of when node:http2 does: at once, at the end of the turn, two turns later. */
async function writeAnswer(duplex: ConnectionDuplex, stream: number): Promise<void> {
  duplex.write(frame(HEADERS, 0, stream, "headers"));
  await Promise.resolve();
  duplex.write(frame(DATA, 0, stream, "message"));
  await turn();
  await turn();
  duplex.write(frame(HEADERS, END_STREAM, stream, "trailers"));
}

Deno.test("headers, message and trailers leave in one write, at once", {
  permissions: "none",
}, async () => {
  const { transport, duplex } = open();
  await writeAnswer(duplex, 1);
  assertEquals(transport.writes.map(payloads), [["headers", "message", "trailers"]]);
  await writeAnswer(duplex, 3);
  assertEquals(transport.writes.length, 2);
  duplex.destroy();
});

Deno.test("the answers of several calls leave together", { permissions: "none" }, async () => {
  const { transport, duplex } = open();
  await Promise.all([writeAnswer(duplex, 1), writeAnswer(duplex, 3), writeAnswer(duplex, 5)]);
  assertEquals(transport.writes.map((write) => payloads(write).length), [9]);
  duplex.destroy();
});

Deno.test("an answer that goes on leaves as far as it is", { permissions: "none" }, async () => {
  const { transport, duplex } = open();
  const headers = frame(HEADERS, 0, 1, "headers");
  duplex.write(headers);
  await transport.taken(headers.length);
  duplex.write(frame(DATA, 0, 1, "message"));
  duplex.write(frame(DATA, 0, 1, "another"));
  await transport.taken(3 * headers.length);
  assertEquals(transport.writes.map(payloads), [["headers"], ["message", "another"]]);
  // Another call's answer does not wait for it.
  await writeAnswer(duplex, 3);
  await transport.taken(6 * headers.length + 1);
  // A write that is under way would hold the next one.
  await turn();
  duplex.write(frame(RST_STREAM, 0, 1, "reset"));
  assertEquals(payloads(transport.writes.at(-1)!), ["reset"]);
  duplex.destroy();
});

Deno.test("an answer that the client gave up is not waited for", {
  permissions: "none",
}, async () => {
  const { transport, duplex } = open();
  const headers = frame(HEADERS, 0, 1, "headers");
  duplex.write(headers);
  await transport.taken(headers.length);
  duplex.abandonAnswer(1);
  await turn();
  await writeAnswer(duplex, 3);
  assertEquals(payloads(transport.writes.at(-1)!), ["headers", "message", "trailers"]);
  duplex.destroy();
});

Deno.test("a lone frame does not wait for another", { permissions: "none" }, async () => {
  const { transport, duplex } = open();
  const ping = frame(PING, 1, 0, "ping");
  duplex.write(ping);
  await transport.taken(ping.length);
  duplex.write(ping);
  await transport.taken(2 * ping.length);
  assertEquals(transport.writes.map(payloads), [["ping"], ["ping"]]);
  duplex.destroy();
});

Deno.test("what is no frame is not held", { permissions: "none" }, () => {
  const { transport, duplex } = open(false);
  duplex.write(new TextEncoder().encode("a TLS record"));
  assertEquals(transport.writes, ["a TLS record"]);
  duplex.destroy();
});

Deno.test("while the kernel takes nothing, calls are told to wait, and go on after it", {
  permissions: "none",
}, async () => {
  const { transport, duplex } = open();
  const release = transport.hold();
  const piece = new Uint8Array(64 * 1024);
  let resumed = 0;
  const resume = () => resumed++;
  for (let i = 0; i < 8; i++) duplex.write(piece);
  assertEquals(duplex.isFull, false);
  duplex.write(piece);
  assertEquals(duplex.isFull, true);
  duplex.whenDrained(resume);
  const cancelled = () => resumed += 100;
  duplex.whenDrained(cancelled);
  duplex.cancel(cancelled);
  await turn();
  assertEquals(resumed, 0);
  release();
  await transport.taken(9 * piece.length);
  await turn();
  assertEquals([resumed, duplex.isFull], [1, false]);
  duplex.destroy();
});

Deno.test("the end of the connection is the end of all waits for it", {
  permissions: "none",
}, async () => {
  const { transport, duplex } = open();
  transport.hold();
  for (let i = 0; i < 9; i++) duplex.write(new Uint8Array(64 * 1024));
  const drained = new Promise<void>((resolve) => duplex.whenDrained(resolve));
  duplex.destroy();
  await drained;
  assertEquals(duplex.isFull, false);
});

Deno.test("a full joining buffer leaves at once", { permissions: "none" }, () => {
  const { transport, duplex } = open();
  for (let i = 0; i < 16; i++) duplex.write(new Uint8Array(16 * 1024));
  assertEquals(transport.writes.map((text) => text.length), [256 * 1024]);
  duplex.destroy();
});

Deno.test("destroying a connection gives its last frame to the transport first", {
  permissions: "none",
}, () => {
  const { transport, duplex } = open();
  duplex.write(frame(PING, 0, 0, "goaway"));
  duplex.destroy();
  assertEquals(transport.writes.map(payloads), [["goaway"]]);
});

Deno.test("ending a connection sends what was held", { permissions: "none" }, async () => {
  const { transport, duplex } = open();
  duplex.write(frame(PING, 0, 0, "last"));
  await new Promise<void>((resolve) => duplex.end(resolve));
  assertEquals(transport.writes.map(payloads), [["last"]]);
  duplex.destroy();
});
