// When the young generation is collected.
import { assertEquals } from "@std/assert";

const MODULE = new URL("../../src/buffer_garbage.ts", import.meta.url).href;
const MIB = 1024 * 1024;

/** A fresh copy of the module, with `gc` where V8 puts its own. */
async function load(gc: ((options: unknown) => void) | undefined) {
  const holder = globalThis as { gc?: unknown };
  const before = holder.gc;
  holder.gc = gc;
  try {
    const { countMoved } = await import(`${MODULE}?${crypto.randomUUID()}`);
    return countMoved as (bytes: number) => void;
  } finally {
    if (before === undefined) delete holder.gc;
    else holder.gc = before;
  }
}

Deno.test("every 8 MiB the young generation is collected, and only that", async () => {
  const collections: unknown[] = [];
  const countMoved = await load((options) => collections.push(options));
  for (let i = 0; i < 127; i++) countMoved(64 * 1024);
  assertEquals(collections, []);
  countMoved(64 * 1024);
  assertEquals(collections, [{ type: "minor" }]);
  countMoved(8 * MIB - 1);
  assertEquals(collections.length, 1);
  countMoved(100 * MIB);
  assertEquals(collections.length, 2);
});

Deno.test("without --expose-gc nothing happens", async () => {
  const countMoved = await load(undefined);
  countMoved(100 * MIB);
});
