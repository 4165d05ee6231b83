// Whose memory the bytes are that a connection brings.
import { assertEquals } from "@std/assert";
import { systemClock } from "../../../src/clock.ts";
import { ConnectionDuplex } from "../../../src/wire/connection_duplex.ts";
import type { Transport } from "../../../src/wire/transport.ts";

/** Brings `texts`, each in one and the same memory if it was given back, and then waits. */
class LendingTransport implements Transport {
  readonly peer = "test";
  readonly remote = { address: "test", port: undefined };
  allocated = 0;
  readonly #texts: string[];
  #free: Uint8Array<ArrayBuffer>[] = [];

  constructor(texts: readonly string[]) {
    this.#texts = [...texts];
  }

  read(): Promise<Uint8Array | null> {
    const text = this.#texts.shift();
    if (text === undefined) return new Promise(() => {});
    const memory = this.#free.pop() ?? this.#allocate();
    const { written } = new TextEncoder().encodeInto(text, memory);
    return Promise.resolve(memory.subarray(0, written));
  }

  #allocate(): Uint8Array<ArrayBuffer> {
    this.allocated++;
    return new Uint8Array(16);
  }

  recycle(bytes: Uint8Array<ArrayBuffer>): void {
    const memory = new Uint8Array(bytes.buffer);
    // Whoever still looks at it gets to see that.
    memory.fill("#".charCodeAt(0));
    this.#free.push(memory);
  }

  write(): Promise<void> {
    return Promise.resolve();
  }

  closeWrite(): Promise<void> {
    return Promise.resolve();
  }

  close(): void {}
}

/** Listens until `count` chunks were seen, as text, decoded at once. */
function listen(duplex: ConnectionDuplex, count: number): Promise<string[]> {
  const seen: string[] = [];
  return new Promise((resolve) => {
    duplex.on("data", (chunk: Uint8Array) => {
      seen.push(new TextDecoder().decode(chunk));
      if (seen.length === count) resolve(seen);
    });
  });
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

Deno.test("memory that was consumed at once is used again", { permissions: "none" }, async () => {
  const transport = new LendingTransport(["one", "two", "three", "four"]);
  const duplex = new ConnectionDuplex(transport, { clock: systemClock, isHttp2: true });
  assertEquals(await listen(duplex, 4), ["one", "two", "three", "four"]);
  assertEquals(transport.allocated, 1);
  duplex.destroy();
});

Deno.test("what a paused stream holds is not overwritten", { permissions: "none" }, async () => {
  const transport = new LendingTransport(["one", "two", "three", "four"]);
  const duplex = new ConnectionDuplex(transport, { clock: systemClock, isHttp2: true });
  // Reads ahead without anybody listening.
  duplex.read(0);
  for (let i = 0; i < 4; i++) await turn();
  const text = await listen(duplex, 1);
  assertEquals(text.join(""), "onetwothreefour".slice(0, text.join("").length));
  assertEquals(transport.allocated, 4);
  duplex.destroy();
});

Deno.test("memory is not used again where the listener may keep it", {
  permissions: "none",
}, async () => {
  const transport = new LendingTransport(["one", "two", "three", "four"]);
  const duplex = new ConnectionDuplex(transport, { clock: systemClock });
  assertEquals(await listen(duplex, 4), ["one", "two", "three", "four"]);
  assertEquals(transport.allocated, 4);
  duplex.destroy();
});
