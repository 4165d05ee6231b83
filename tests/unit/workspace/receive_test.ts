// Gathering chunks into few writes, with a file that is written down instead of written.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { Interruption, receiveInto } from "../../../src/workspace/receive.ts";

/** A file that takes at most `limit` bytes a write, as a nearly full disk does, and looks at them late. */
function fakeFile(limit = Infinity) {
  const writes: Uint8Array[] = [];
  const file = {
    async write(data: Uint8Array): Promise<number> {
      await new Promise((resolve) => setImmediate(resolve));
      const taken = data.slice(0, Math.min(limit, data.length));
      writes.push(taken);
      return taken.length;
    },
  } as unknown as Deno.FsFile;
  return { file, writes };
}

async function* sourceOf(sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  let at = 0;
  for (const size of sizes) {
    const chunk = new Uint8Array(size);
    for (let i = 0; i < size; i++) chunk[i] = at++ % 251;
    yield chunk;
  }
}

function assertContent(writes: readonly Uint8Array[], total: number): void {
  let at = 0;
  for (const data of writes) {
    for (const byte of data) if (byte !== at++ % 251) throw new Error(`wrong byte at ${at - 1}`);
  }
  assertEquals(at, total);
}

Deno.test("bytes arrive in order, whatever the sizes of the chunks", {
  permissions: "none",
}, async () => {
  const MiB = 1024 * 1024;
  const cases: number[][] = [
    [],
    [0, 0],
    [5],
    [5, 0, 6],
    [MiB],
    [3 * MiB + 1, 2, 300_000, 1],
    [100, 400_000, 100, 100_000],
    Array.from({ length: 40 }, () => 64 * 1024),
    Array.from({ length: 3000 }, (_, i) => i % 1500),
    Array.from({ length: 30 }, (_, i) => i % 5 === 0 ? 400_000 : 100_000),
    [255 * 1024, 255 * 1024, 255 * 1024, 255 * 1024, 255 * 1024],
  ];
  for (const sizes of cases) {
    const { file, writes } = fakeFile(700_000);
    using interruption = new Interruption(new AbortController().signal);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    assertEquals(await receiveInto(file, sourceOf(sizes), interruption), total);
    assertContent(writes, total);
  }
});

Deno.test("small chunks are gathered into writes of 256 KiB", {
  permissions: "none",
}, async () => {
  const { file, writes } = fakeFile();
  using interruption = new Interruption(new AbortController().signal);
  await receiveInto(file, sourceOf(Array.from({ length: 64 }, () => 64 * 1024)), interruption);
  assertEquals(writes.map((data) => data.length), Array.from({ length: 16 }, () => 256 * 1024));
});

Deno.test("a cancel ends the wait for a source that says nothing, and lets go of it", {
  permissions: "none",
}, async () => {
  const { file } = fakeFile();
  const controller = new AbortController();
  using interruption = new Interruption(controller.signal);
  let returned = false;
  const silent: AsyncIterable<Uint8Array> = {
    [Symbol.asyncIterator]: () => ({
      next: () => new Promise(() => {}),
      return: () => {
        returned = true;
        return Promise.resolve({ done: true, value: undefined });
      },
    }),
  };
  const received = receiveInto(file, silent, interruption);
  controller.abort();
  const error = await assertRejects(() => received, AgentError);
  assertEquals(error.kind, "cancelled");
  assert(returned);
});

Deno.test("a failed write ends the call though the source pauses for ever", {
  permissions: "none",
}, async () => {
  const file = {
    write: () => Promise.reject(new Error("disk full")),
  } as unknown as Deno.FsFile;
  using interruption = new Interruption(new AbortController().signal);
  let first = true;
  const pausing: AsyncIterable<Uint8Array> = {
    [Symbol.asyncIterator]: () => ({
      next: () => {
        if (!first) return new Promise(() => {});
        first = false;
        return Promise.resolve({ done: false, value: new Uint8Array(512 * 1024) });
      },
    }),
  };
  await assertRejects(() => receiveInto(file, pausing, interruption), Error, "disk full");
});

Deno.test("an error of the source is the error of the call", { permissions: "none" }, async () => {
  const { file } = fakeFile();
  using interruption = new Interruption(new AbortController().signal);
  async function* failing() {
    yield new Uint8Array(3);
    await Promise.resolve();
    throw new AgentError("invalid-argument", "another path");
  }
  await assertRejects(() => receiveInto(file, failing(), interruption), AgentError, "another path");
});
