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

  write(bytes: Uint8Array): Promise<void> {
    if (this.#isClosed) throw new Error("Cannot write: the transport is closed");
    this.writes.push(new TextDecoder().decode(bytes));
    this.#bytes += bytes.length;
    this.#look();
    return Promise.resolve();
  }

  closeWrite(): Promise<void> {
    return Promise.resolve();
  }

  close(): void {
    this.#isClosed = true;
  }
}

function open() {
  const transport = new RecordingTransport();
  return { transport, duplex: new ConnectionDuplex(transport, { clock: systemClock }) };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

Deno.test("headers, message and trailers leave in one write", { permissions: "none" }, async () => {
  const { transport, duplex } = open();
  duplex.write("headers ");
  await new Promise<void>((resolve) => queueMicrotask(resolve));
  duplex.write("message ");
  await turn();
  await turn();
  duplex.write("trailers");
  await transport.taken(24);
  assertEquals(transport.writes, ["headers message trailers"]);
  duplex.destroy();
});

Deno.test("a lone frame does not wait for another", { permissions: "none" }, async () => {
  const { transport, duplex } = open();
  duplex.write("ping");
  await transport.taken(4);
  duplex.write("pong");
  await transport.taken(8);
  assertEquals(transport.writes, ["ping", "pong"]);
  duplex.destroy();
});

Deno.test("a full joining buffer leaves at once", { permissions: "none" }, () => {
  const { transport, duplex } = open();
  for (let i = 0; i < 16; i++) duplex.write("x".repeat(16 * 1024));
  assertEquals(transport.writes.map((text) => text.length), [256 * 1024]);
  duplex.destroy();
});

Deno.test("destroying a connection gives its last frame to the transport first", {
  permissions: "none",
}, () => {
  const { transport, duplex } = open();
  duplex.write("goaway");
  duplex.destroy();
  assertEquals(transport.writes, ["goaway"]);
});

Deno.test("ending a connection sends what was held", { permissions: "none" }, async () => {
  const { transport, duplex } = open();
  duplex.write("last");
  await new Promise<void>((resolve) => duplex.end(resolve));
  assertEquals(transport.writes, ["last"]);
  duplex.destroy();
});
