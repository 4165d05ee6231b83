// One reader of both streams: where it ends, what wakes it, what it leaves behind.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { followOutputs, type OutputPiece, type ProcessSpool } from "../../../src/spool/mod.ts";
import {
  collectOutputs,
  concat,
  createMemoryStore,
  isPattern,
  pattern,
  settled,
} from "../../helpers/spool_fixture.ts";

const MIB = 1024 * 1024;
const none = { permissions: "none" } as const;

function follow(spool: ProcessSpool, signal?: AbortSignal) {
  const request = { spool, stdoutOffset: 0, stderrOffset: 0, follow: true };
  return followOutputs(signal === undefined ? request : { ...request, signal });
}

Deno.test(
  "without follow: what is stored at the time of the call, then the end",
  none,
  async () => {
    const { store } = createMemoryStore();
    const spool = store.create("/p");
    spool.stdout.append(pattern(0, 100));
    spool.stderr.append(pattern(0, 50));
    const outputs = followOutputs({ spool, stdoutOffset: 10, stderrOffset: 50, follow: false });
    spool.stdout.append(pattern(100, 100));
    const pieces: OutputPiece[] = [];
    for await (const piece of outputs) pieces.push(piece);
    assertEquals(pieces, [{ source: "stdout", data: pattern(10, 90) }]);
    assertEquals(await collectOutputs({ spool, stdoutOffset: 2 ** 63, stderrOffset: 51 }), {
      stdout: new Uint8Array(0),
      stderr: new Uint8Array(0),
    });
    await spool.flush();
  },
);

Deno.test("follow wakes at each append, and ends when the process is final", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  const outputs = follow(spool);
  const first = outputs.next();
  await settled();
  assertEquals(spool.waiting, 1);
  const chunk = pattern(0, 10);
  spool.stdout.append(chunk);
  assert((await first).value?.data === chunk);
  const second = outputs.next();
  spool.stderr.append(pattern(0, 3));
  assertEquals((await second).value, { source: "stderr", data: pattern(0, 3) });
  const last = outputs.next();
  spool.stdout.end();
  spool.stderr.end();
  await settled();
  assertEquals(spool.waiting, 1, "the end of the streams is not the end of the process");
  spool.finish();
  assertEquals(await last, { done: true, value: undefined });
  assertEquals(spool.waiting, 0);
});

Deno.test("finality may be told by the owner", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  const state: { final?: { stdout: number; stderr: number } } = {};
  const outputs = followOutputs({
    spool,
    stdoutOffset: 0,
    stderrOffset: 0,
    follow: true,
    finished: () => state.final,
  });
  const next = outputs.next();
  spool.wake();
  await settled();
  assertEquals(spool.waiting, 1);
  state.final = { stdout: 0, stderr: 0 };
  spool.wake();
  assertEquals(await next, { done: true, value: undefined });
});

Deno.test("a follow from beyond the end waits for the exit and sends nothing", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  const far = 9223372036854775807;
  const reading = collectOutputs({ spool, stdoutOffset: far, stderrOffset: far, follow: true });
  spool.stdout.append(pattern(0, 10));
  await settled();
  assertEquals(spool.waiting, 1);
  spool.finish();
  assertEquals((await reading).stdout.byteLength, 0);
  await spool.flush();
});

Deno.test(
  "a follow from a little beyond the end sends what comes from there on",
  none,
  async () => {
    const { store } = createMemoryStore();
    const spool = store.create("/p");
    const reading = collectOutputs({ spool, stdoutOffset: 15, follow: true });
    for (const at of [0, 10, 20]) spool.stdout.append(pattern(at, 10));
    spool.finish();
    assertEquals((await reading).stdout, pattern(15, 15));
    await spool.flush();
  },
);

Deno.test("late output: appended, and sent to who comes later", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  spool.stdout.append(pattern(0, 10));
  spool.finish();
  spool.stdout.append(pattern(10, 10));
  await spool.flush();
  assertEquals(spool.finalOffsets, { stdout: 10, stderr: 0 });
  assertEquals((await collectOutputs({ spool, follow: true })).stdout, pattern(0, 20));
  spool.stdout.end();
});

Deno.test(
  "a descendant that writes for ever does not hold a follower of a final process",
  none,
  async () => {
    const { store } = createMemoryStore();
    const spool = store.create("/p");
    spool.stdout.append(pattern(0, 10));
    spool.finish();
    let end = 10;
    let pieces = 0;
    for await (const { data } of follow(spool)) {
      assertEquals(data, pattern(0, 10));
      spool.stdout.append(pattern(end, 10));
      end += 10;
      assert(++pieces < 10);
    }
    await spool.flush();
  },
);

Deno.test("when both streams have data neither starves", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  for (let at = 0; at < 4 * MIB; at += MIB / 4) {
    await spool.stdout.append(pattern(at, MIB / 4));
    await spool.stderr.append(pattern(at, MIB / 4));
  }
  spool.finish();
  for (const isOnDisk of [false, true]) {
    if (isOnDisk) await spool.flush();
    let run = 0;
    let last = "";
    const seen: string[] = [];
    for await (
      const { source } of followOutputs({
        spool,
        stdoutOffset: 0,
        stderrOffset: 0,
        follow: true,
        maxPieceBytes: MIB / 4,
      })
    ) {
      run = source === last ? run + 1 : 1;
      last = source;
      assert(run <= 2, `${seen} ${source}`);
      seen.push(source);
    }
    assertEquals(seen.length, 32);
  }
});

Deno.test("one reader's piece is the other's, in follow too", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  const readers = Array.from({ length: 1000 }, () => follow(spool));
  for (let at = 0; at < 500; at += 100) {
    const chunk = pattern(at, 100);
    const reads = readers.map((reader) => reader.next());
    await settled();
    spool.stdout.append(chunk);
    for (const { value } of await Promise.all(reads)) assert(value?.data === chunk);
  }
  await Promise.all(readers.map((reader) => reader.return!()));
  assertEquals(spool.waiting, 0);
  await spool.flush();
  assertEquals(store.tailBytes, 0);
});

Deno.test("a crowd that replays from disk shares what is read", none, async () => {
  const { files, store } = createMemoryStore();
  const spool = store.create("/p");
  for (let at = 0; at < 3 * MIB; at += MIB / 4) await spool.stdout.append(pattern(at, MIB / 4));
  await spool.flush();
  let reads = 0;
  const read = files.read.bind(files);
  files.read = (...args) => {
    reads++;
    return read(...args);
  };
  const early = Array.from({ length: 100 }, () => follow(spool));
  const first = await Promise.all(early.map((reader) => reader.next()));
  const late = follow(spool);
  first.push(await late.next());
  assertEquals(new Set(first.map(({ value }) => value?.data)).size, 1);
  await settled();
  assert(reads <= 3, `${reads} reads for the first piece and what is read ahead`);
  files.readError = new Error("bad disk");
  const other = () => collectOutputs({ spool, stdoutOffset: 5 });
  await assertRejects(other, AgentError);
  files.readError = undefined;
  assert(isPattern(5, (await other()).stdout));
  await Promise.all([...early, late].map((reader) => reader.return!()));
});

Deno.test("a stalled reader holds two pieces, and reads no more", none, async () => {
  const { files, store } = createMemoryStore();
  const spool = store.create("/p");
  for (let at = 0; at < 8 * MIB; at += MIB / 4) await spool.stdout.append(pattern(at, MIB / 4));
  await spool.flush();
  let bytesRead = 0;
  const read = files.read.bind(files);
  files.read = async (...args) => {
    const count = await read(...args);
    bytesRead += count;
    return count;
  };
  const outputs = follow(spool);
  let delivered = 0;
  for (let i = 0; i < 5; i++) {
    const { value } = await outputs.next();
    assert(isPattern(delivered, value!.data));
    delivered += value!.data.byteLength;
    await settled();
    assert(bytesRead - delivered > 0, "one piece is read ahead");
    assert(bytesRead - delivered <= MIB);
  }
  await outputs.return!();
  await settled();
  assert(bytesRead - delivered <= MIB);
});

Deno.test("stalled readers together hold a bounded number of pieces read ahead", none, async () => {
  const { files, store } = createMemoryStore();
  const spool = store.create("/p");
  for (let at = 0; at < 4 * MIB; at += MIB / 4) await spool.stdout.append(pattern(at, MIB / 4));
  await spool.flush();
  let reads = 0;
  const read = files.read.bind(files);
  files.read = (...args) => {
    reads++;
    return read(...args);
  };
  // Each round takes and gives back all slots, by way of each of the ends a follower may come to.
  for (const ending of ["return", "abort", "overtaken"] as const) {
    const gone = new AbortController();
    const readers = Array.from({ length: 40 }, (_, index) =>
      followOutputs({
        spool,
        stdoutOffset: index,
        stderrOffset: 0,
        follow: true,
        maxPieceBytes: 64 * 1024,
        signal: gone.signal,
      }));
    reads = 0;
    for (const reader of readers) await reader.next();
    assertEquals(reads, 40 + 16, ending);
    if (ending === "return") await Promise.all(readers.map((reader) => reader.return!()));
    else if (ending === "abort") gone.abort();
    else {
      spool.forget();
      for (const reader of readers) {
        const drain = async () => {
          for await (const _ of reader);
        };
        await assertRejects(drain, AgentError);
      }
      assert(Array.from({ length: 17 }, () => spool.readAhead.take()).indexOf(false) === 16);
    }
    await settled();
  }
});

Deno.test("return() ends a wait and a read from disk, and leaves nothing", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  const waiting = follow(spool);
  const wait = waiting.next();
  await settled();
  await waiting.return!();
  assertEquals(await wait, { done: true, value: undefined });
  spool.stdout.append(pattern(0, 10));
  await spool.flush();
  const reading = follow(spool);
  const read = reading.next();
  await reading.return!();
  assertEquals(await read, { done: true, value: undefined });
  assertEquals(await reading.next(), { done: true, value: undefined });
  assertEquals([spool.waiting, store.tailBytes], [0, 0]);
});

Deno.test("an aborted signal ends a follow, whatever it is at", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  const gone = new AbortController();
  const waiting = follow(spool, gone.signal);
  const idle = follow(spool, gone.signal);
  const wait = waiting.next();
  spool.stdout.append(pattern(0, 10));
  assertEquals((await idle.next()).value?.data, pattern(0, 10));
  assertEquals((await wait).value?.data, pattern(0, 10));
  const again = waiting.next();
  await settled();
  gone.abort();
  const error = await assertRejects(() => again, AgentError);
  assertEquals(error.kind, "cancelled");
  // The one whose consumer never calls again keeps nothing either.
  await spool.flush();
  assertEquals([spool.waiting, store.tailBytes], [0, 0]);
  await assertRejects(() => idle.next(), AgentError, "cancelled");
  await assertRejects(() => follow(spool, gone.signal).next(), AgentError, "cancelled");
  assertEquals(store.tailBytes, 0);
});

Deno.test("a follower of output that is removed ends", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  const outputs = follow(spool);
  const next = outputs.next();
  await spool.remove();
  assertEquals(await next, { done: true, value: undefined });
});

Deno.test("a follow from disk into the live tail has every byte", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  let at = 0;
  const append = async (bytes: number) => {
    await spool.stdout.append(pattern(at, bytes));
    at += bytes;
  };
  for (let i = 0; i < 10; i++) await append(300_000);
  const parts: Uint8Array[] = [];
  let rounds = 0;
  for await (const { data } of follow(spool)) {
    parts.push(data);
    if (rounds++ < 20) await append(100_000);
    else spool.finish();
  }
  const all = concat(parts);
  assertEquals(all.byteLength, at);
  assert(isPattern(0, all));
  await spool.flush();
});
