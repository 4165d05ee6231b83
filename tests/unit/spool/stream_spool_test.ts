// One stream: what is appended can be read at once, is written behind, and costs bounded memory.
import { assert, assertEquals, assertThrows } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import {
  concat,
  createMemoryStore,
  HastyClock,
  isPattern,
  pattern,
  settled,
} from "../../helpers/spool_fixture.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const none = { permissions: "none" } as const;

Deno.test("what is appended can be read before it is written", none, async () => {
  const { files, store } = createMemoryStore();
  const release = files.holdWrites();
  const { stdout } = store.create("/p");
  stdout.append(pattern(0, 10));
  assertEquals(stdout.endOffset, 10);
  assertEquals(stdout.readAt(0, 100), pattern(0, 10));
  assertEquals(stdout.readAt(4, 3), pattern(4, 3));
  assertEquals(stdout.readAt(10, 100), null);
  assertEquals(stdout.readAt(2 ** 63, 100), null);
  release();
  await stdout.flush();
  assertEquals(await stdout.readAt(4, 3), pattern(4, 3));
});

Deno.test("no file before the first byte, one for each stream", none, async () => {
  const { files, store } = createMemoryStore();
  const spool = store.create("/p");
  spool.stdout.append(new Uint8Array(0));
  await spool.flush();
  assertEquals(files.names, []);
  spool.stderr.append(pattern(0, 5));
  await spool.flush();
  assertEquals(files.names, ["/p/stderr.0"]);
  spool.stdout.end();
  spool.stderr.end();
  await settled();
  assertEquals(files.open, 0);
});

Deno.test("a file is closed when its stream has ended, and its bytes stay", none, async () => {
  const { files, store } = createMemoryStore();
  const { stdout } = store.create("/p");
  stdout.append(pattern(0, 5));
  stdout.end();
  stdout.end();
  await settled();
  assertEquals([stdout.ended, files.open], [true, 0]);
  assertEquals(await stdout.readAt(0, 9), pattern(0, 5));
  const error = assertThrows(() => stdout.append(pattern(5, 1)), TypeError);
  assertEquals(error.message, "Cannot append: the stream has ended");
});

Deno.test("readers at the start of a piece get the same object", none, () => {
  const { files, store } = createMemoryStore();
  files.holdWrites();
  const { stdout } = store.create("/p");
  const chunk = pattern(0, 100);
  stdout.append(chunk);
  using first = stdout.openReader(0, true);
  using second = stdout.openReader(0, true);
  assert(first.read(MIB) === chunk);
  assert(second.read(MIB) === chunk);
  const next = pattern(100, 50);
  stdout.append(next);
  assert(first.read(MIB) === next);
  assert(second.read(MIB) === next);
});

Deno.test(
  "a reader that is some small pieces behind gets them joined, once for all",
  none,
  async () => {
    const { files, store } = createMemoryStore();
    const release = files.holdWrites();
    const { stdout } = store.create("/p");
    for (let at = 0; at < 1000; at += 10) stdout.append(pattern(at, 10));
    const joined = stdout.readAt(0, MIB) as Uint8Array;
    assertEquals(joined, pattern(0, 1000));
    assert(stdout.readAt(0, MIB) === joined);
    assertEquals(stdout.readAt(995, MIB), pattern(995, 5));
    release();
    await stdout.flush();
    assertEquals(store.tailBytes, 0);
  },
);

Deno.test("readers that were not behind share the memory of a joined piece", none, () => {
  const { files, store } = createMemoryStore();
  files.holdWrites();
  const { stdout } = store.create("/p");
  for (let at = 0; at < 300 * KIB; at += 100 * KIB) stdout.append(pattern(at, 100 * KIB));
  const joined = stdout.readAt(0, MIB) as Uint8Array;
  assertEquals(joined.byteLength, 300 * KIB);
  const rest = stdout.readAt(200 * KIB, MIB) as Uint8Array;
  assertEquals(rest, pattern(200 * KIB, 100 * KIB));
  assert(rest.buffer === joined.buffer);
  assertEquals(stdout.readAt(200 * KIB, 10), pattern(200 * KIB, 10));
  assertEquals(stdout.readAt(100 * KIB, MIB), pattern(100 * KIB, 200 * KIB));
});

Deno.test("pieces of a size are handed out as they are", none, () => {
  const { files, store } = createMemoryStore();
  files.holdWrites();
  const { stdout } = store.create("/p");
  const chunks = [pattern(0, 256 * KIB), pattern(256 * KIB, 256 * KIB)];
  for (const chunk of chunks) stdout.append(chunk);
  assert(stdout.readAt(0, MIB) === chunks[0]);
  assert(stdout.readAt(256 * KIB, MIB) === chunks[1]);
});

Deno.test("a chunk larger than a message becomes pieces of at most that", none, () => {
  const { files, store } = createMemoryStore();
  files.holdWrites();
  const { stdout } = store.create("/p");
  stdout.append(pattern(0, 3 * MIB));
  using reader = stdout.openReader(0);
  const parts: Uint8Array[] = [];
  while (reader.hasMore) parts.push(reader.read(MIB - 4096) as Uint8Array);
  assert(parts.every(({ byteLength }) => byteLength <= MIB - 4096));
  assertEquals(parts.length, 4);
  assert(isPattern(0, concat(parts)));
});

Deno.test("a few bytes of a large buffer do not hold the buffer", none, () => {
  const { files, store } = createMemoryStore();
  files.holdWrites();
  const { stdout } = store.create("/p");
  stdout.append(new Uint8Array(256 * KIB).subarray(0, 10));
  const piece = stdout.readAt(0, 100) as Uint8Array;
  assertEquals([piece.byteLength, piece.buffer.byteLength], [10, 10]);
});

Deno.test("small appends are written together, one write at a time", none, async () => {
  const { files, store } = createMemoryStore();
  const release = files.holdWrites();
  const { stdout } = store.create("/p");
  for (let at = 0; at < 1000; at += 10) assertEquals(stdout.append(pattern(at, 10)), undefined);
  release();
  await stdout.flush();
  assertEquals(files.contents.get("/p/stdout.0"), pattern(0, 1000));
  // The first append starts its write at once; what comes meanwhile goes in the next one.
  assertEquals([files.writes, files.maxConcurrent], [[10, 990], 1]);
});

Deno.test(
  "the pump waits while the disk is behind, and goes on when it caught up",
  none,
  async () => {
    const { files, store } = createMemoryStore();
    const { stdout } = store.create("/p");
    const release = files.holdWrites();
    let waiting: Promise<void> | undefined;
    let chunks = 0;
    while (waiting === undefined) waiting = stdout.append(pattern(256 * KIB * chunks++, 256 * KIB));
    assertEquals(chunks, 4);
    assert(stdout.append(pattern(256 * KIB * chunks++, 256 * KIB)) === waiting);
    release();
    await waiting;
    assert(store.tailBytes <= MIB / 2, "half of the tail is free");
    assert(store.tailBytes > 0, "the pump and the disk work side by side");
    await stdout.flush();
    assertEquals(store.tailBytes, 0);
    assert(isPattern(0, (await stdout.readAt(0, 9 * MIB))!));
  },
);

Deno.test("tiny pieces count with their overhead", none, async () => {
  const { files, store } = createMemoryStore();
  const { stdout } = store.create("/p");
  const release = files.holdWrites();
  let waiting: Promise<void> | undefined;
  let count = 0;
  for (; waiting === undefined; count++) waiting = stdout.append(pattern(count, 1));
  assert(count < 5000, `${count} pieces of one byte`);
  release();
  await waiting;
  await stdout.flush();
});

Deno.test(
  "all streams together have a bound: each then waits for its own write",
  none,
  async () => {
    const { files, store } = createMemoryStore({ tailBudgetBytes: 100 * KIB });
    const release = files.holdWrites();
    const spools = [store.create("/a"), store.create("/b")];
    assertEquals(spools[0]!.stdout.append(pattern(0, 64 * KIB)), undefined);
    const waiting = spools[1]!.stdout.append(pattern(0, 64 * KIB));
    assert(waiting !== undefined);
    release();
    await waiting;
    for (const spool of spools) await spool.flush();
    assertEquals(store.tailBytes, 0);
  },
);

Deno.test(
  "recent bytes stay in memory for followers only, and not beyond the end",
  none,
  async () => {
    const { store } = createMemoryStore();
    const { stdout } = store.create("/p");
    stdout.append(pattern(0, 1000));
    await stdout.flush();
    assertEquals(store.tailBytes, 0);
    const reader = stdout.openReader(0, true);
    const chunk = pattern(1000, 1000);
    stdout.append(chunk);
    await stdout.flush();
    assert(stdout.readAt(1000, MIB) === chunk);
    reader[Symbol.dispose]();
    reader[Symbol.dispose]();
    assertEquals(store.tailBytes, 0);
    assertEquals(await stdout.readAt(1000, MIB), chunk);

    using _follower = stdout.openReader(0, true);
    stdout.append(pattern(2000, 1000));
    stdout.end();
    await stdout.flush();
    assertEquals(store.tailBytes, 0);
    assertEquals(await stdout.readAt(2000, MIB), pattern(2000, 1000));
  },
);

Deno.test("recent bytes of silent streams go first when memory is short", none, async () => {
  const { store } = createMemoryStore({ tailBudgetBytes: 200 * KIB });
  const [silent, busy] = [store.create("/a").stdout, store.create("/b").stdout];
  using _a = silent.openReader(0, true);
  using _b = busy.openReader(0, true);
  silent.append(pattern(0, 100 * KIB));
  await silent.flush();
  for (const at of [0, 64 * KIB]) {
    await busy.append(pattern(at, 64 * KIB));
    await busy.flush();
  }
  assertEquals([silent.tailStart, busy.tailStart], [silent.endOffset, 0]);
});

Deno.test("the tail of a stream with followers is bounded", none, async () => {
  const { store } = createMemoryStore();
  const { stdout } = store.create("/p");
  using _reader = stdout.openReader(0, true);
  for (let at = 0; at < 5 * MIB; at += 64 * KIB) {
    await stdout.append(pattern(at, 64 * KIB));
    assert(store.tailBytes <= MIB + 65 * KIB);
  }
  await stdout.flush();
  assert(store.tailBytes > MIB / 2 && store.tailBytes <= MIB);
});

Deno.test("segments have their size, and reads go across them", none, async () => {
  const { files, store } = createMemoryStore();
  const { stdout } = store.create("/p");
  for (let at = 0; at < 5 * MIB; at += 320 * KIB) await stdout.append(pattern(at, 320 * KIB));
  await stdout.flush();
  assertEquals(files.names, [0, 1, 2, 3, 4].map((n) => `/p/stdout.${n * MIB}`));
  const across = await stdout.readAt(MIB - 10, MIB - 4096) as Uint8Array;
  assertEquals(across.byteLength, MIB - 4096);
  assert(isPattern(MIB - 10, across));
});

Deno.test("segments grow with what is kept, up to 4 MiB", none, async () => {
  const { files, store } = createMemoryStore();
  const { stdout } = store.create("/p");
  for (let at = 0; at < 48 * MIB; at += 512 * KIB) {
    await stdout.append(pattern(at, 512 * KIB));
    await stdout.flush();
  }
  const starts = files.names.map((name) => Number(name.split(".")[1])).sort((a, b) => a - b);
  const sizes = starts.map((start) => files.contents.get(`/p/stdout.${start}`)!.byteLength);
  // All but the last one are full.
  for (let i = 0; i < sizes.length - 1; i++) {
    const wanted = Math.min(4 * MIB, Math.max(MIB, starts[i]! / 8));
    assert(Math.abs(sizes[i]! - wanted) <= 512 * KIB, `${sizes[i]} at ${starts[i]}`);
    assertEquals(starts[i + 1], starts[i]! + sizes[i]!);
  }
  assertEquals(sizes[0], MIB);
  assertEquals(sizes.at(-2), 4 * MIB);
});

Deno.test("out of descriptors, the open segment goes on being written", none, async () => {
  const { files, store, logger } = createMemoryStore();
  const { stdout } = store.create("/p");
  await stdout.append(pattern(0, MIB));
  await stdout.flush();
  files.createError = Object.assign(new Error("too many"), { code: "EMFILE" });
  await stdout.append(pattern(MIB, MIB + 5));
  await stdout.flush();
  files.createError = undefined;
  await stdout.append(pattern(2 * MIB + 5, 10));
  await stdout.flush();
  assertEquals(files.names, ["/p/stdout.0", `/p/stdout.${2 * MIB + 5}`]);
  assertEquals([stdout.firstOffset, logger.lines], [0, []]);
  assert(isPattern(MIB - 1, await stdout.readAt(MIB - 1, 500) as Uint8Array));
});

Deno.test(
  "out of descriptors before the first byte is on disk, the child waits",
  none,
  async () => {
    const clock = new HastyClock();
    const { files, store, logger } = createMemoryStore({ clock });
    const { stdout } = store.create("/p");
    files.createError = Object.assign(new Error("too many"), { code: "EMFILE" });
    const behind = stdout.append(pattern(0, 2 * MIB));
    assert(behind !== undefined);
    for (let i = 0; i < 3; i++) await settled();
    assertEquals(stdout.bytes, 2 * MIB);
    files.createError = undefined;
    await behind;
    await stdout.flush();
    assertEquals([stdout.firstOffset, logger.lines.length], [0, 0]);
    assert(clock.timers > 0 && clock.timers <= 4);
  },
);

Deno.test("out of descriptors for long, output is lost like on a full disk", none, async () => {
  const clock = new HastyClock();
  const { files, store, logger } = createMemoryStore({ clock });
  const { stdout } = store.create("/p");
  files.createError = Object.assign(new Error("too many"), { code: "ENFILE" });
  stdout.append(pattern(0, 10));
  await stdout.flush();
  assertEquals([stdout.firstOffset, logger.lines.length, clock.timers], [10, 1, 19]);
});

Deno.test("output that the limit takes at once is not waited for", none, async () => {
  const { files, store } = createMemoryStore({ spoolLimitBytes: 10, tailBudgetBytes: 1 });
  const release = files.holdWrites();
  const [other, spool] = [store.create("/a"), store.create("/p")];
  const waiting = other.stdout.append(pattern(0, 5));
  assert(waiting !== undefined);
  spool.finish();
  assertEquals(spool.stdout.append(pattern(0, 20)), undefined);
  assert(spool.removed);
  release();
  await waiting;
  await store.settle();
});

Deno.test("flush ends although the stream never rests", none, async () => {
  const { store } = createMemoryStore();
  const { stdout } = store.create("/p");
  let at = 0;
  let flushed = false;
  stdout.append(pattern(at++, 1));
  const flush = stdout.flush().then(() => flushed = true);
  for (let i = 0; i < 1000 && !flushed; i++) {
    stdout.append(pattern(at++, 1));
    await Promise.resolve();
  }
  assert(flushed);
  await flush;
  await stdout.flush();
});

Deno.test("remove forgets at once, also while a write is under way", none, async () => {
  const { files, store } = createMemoryStore();
  const release = files.holdWrites();
  const spool = store.create("/p");
  spool.stdout.append(pattern(0, 100));
  spool.stderr.append(pattern(0, 100));
  const removal = spool.remove();
  assertEquals([spool.bytes, store.bytes, store.tailBytes], [0, 0, 0]);
  assertThrows(() => spool.stdout.readAt(0, 1), AgentError, "is no longer stored");
  assertEquals(spool.stdout.append(pattern(100, 9)), undefined);
  release();
  await removal;
  await spool.remove();
  assertEquals([files.names, files.open, store.bytes], [[], 0, 0]);
});

Deno.test("a read that fails is an error of the agent", none, async () => {
  const { files, store } = createMemoryStore();
  const { stdout } = store.create("/p");
  stdout.append(pattern(0, 100));
  await stdout.flush();
  const codes: string[] = [];
  const read = async () => {
    try {
      await stdout.readAt(0, 1);
    } catch (error) {
      assert(error instanceof AgentError);
      codes.push(`${error.kind}: ${error.message}`);
    }
  };
  files.readError = Object.assign(new Error("bad disk"), { code: "EIO" });
  await read();
  files.readError = Object.assign(new Error("too many"), { code: "EMFILE" });
  await read();
  files.readError = undefined;
  files.contents.set("/p/stdout.0", new Uint8Array(0));
  await read();
  assertEquals(codes, [
    "internal: cannot read stored stdout: EIO",
    "resource-exhausted: cannot read stored stdout: EMFILE",
    "internal: cannot read stored stdout: unexpected error",
  ]);
});
