// --output-limit: at least the newest N bytes of a stream are kept, at most N + N/8.
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { followOutputs } from "../../../src/spool/mod.ts";
import { SpoolStore } from "../../../src/spool/spool_store.ts";
import {
  collectOutputs,
  createMemoryStore,
  isPattern,
  pattern,
  settled,
} from "../../helpers/spool_fixture.ts";

const KIB = 1024;
const LIMIT = 64 * KIB;
const none = { permissions: "none" } as const;

Deno.test("a limit below the minimum is refused", none, () => {
  const { logger } = createMemoryStore();
  const error = assertThrows(
    () => new SpoolStore({ outputLimitBytes: LIMIT - 1, spoolLimitBytes: 0, logger }),
    RangeError,
  );
  assertEquals(error.message, "Cannot limit output to 65535 bytes: the minimum is 65536");
});

for (const chunkBytes of [1000, 8 * KIB, 9 * KIB, 64 * KIB, 100 * KIB, 256 * KIB]) {
  Deno.test(`the newest bytes stay, in chunks of ${chunkBytes}`, none, async () => {
    const { files, store } = createMemoryStore({ outputLimitBytes: LIMIT });
    const { stdout } = store.create("/p");
    for (let at = 0; at < 1024 * KIB; at += chunkBytes) {
      await stdout.append(pattern(at, chunkBytes));
      assert(stdout.bytes <= LIMIT + LIMIT / 8, `${stdout.bytes} kept`);
      assert(stdout.bytes >= Math.min(LIMIT, stdout.endOffset), `${stdout.bytes} kept`);
      if (at % 3 === 0) await stdout.flush();
    }
    await stdout.flush();
    const from = stdout.firstOffset;
    const all = await collectOutputs({ spool: store.create("/q"), follow: false });
    assertEquals(all.stdout.byteLength, 0);
    using reader = stdout.openReader(from);
    for (let at = from; reader.hasMore; at = reader.offset) {
      assert(isPattern(at, (await reader.read(5000))!));
    }
    assertEquals(reader.offset, stdout.endOffset);
    assertEquals(store.bytes, stdout.bytes);
    const onDisk = [...files.contents.values()].reduce((sum, c) => sum + c.byteLength, 0);
    assert(onDisk <= LIMIT + 2 * LIMIT / 8, `${onDisk} on disk`);
  });
}

Deno.test("a limit drops whole segments of an eighth of it", none, async () => {
  const { files, store } = createMemoryStore({ outputLimitBytes: LIMIT });
  const { stdout } = store.create("/p");
  for (let at = 0; at < 80 * KIB; at += KIB) {
    stdout.append(pattern(at, KIB));
    await stdout.flush();
  }
  assertEquals(stdout.firstOffset, 8 * KIB);
  assertEquals(files.names.length, 9);
  assert(!files.names.includes("/p/stdout.0"));
});

Deno.test("what is dropped while the disk is behind is never written", none, async () => {
  const { files, store, logger } = createMemoryStore({ outputLimitBytes: LIMIT });
  const { stdout } = store.create("/p");
  const release = files.holdWrites();
  for (let at = 0; at < 4096 * KIB; at += 64 * KIB) {
    assertEquals(stdout.append(pattern(at, 64 * KIB)), undefined);
  }
  release();
  await stdout.flush();
  assert(files.writes.reduce((sum, bytes) => sum + bytes, 0) <= 2 * LIMIT);
  assert(stdout.bytes >= LIMIT);
  assertEquals(logger.lines, []);
  assert(isPattern(stdout.firstOffset, (await stdout.readAt(stdout.firstOffset, LIMIT))!));
});

Deno.test("an offset below the first names the first offsets of both streams", none, async () => {
  const { store } = createMemoryStore({ outputLimitBytes: LIMIT });
  const spool = store.create("/p");
  spool.stderr.append(pattern(0, 10));
  for (let at = 0; at < 80 * KIB; at += 8 * KIB) {
    spool.stdout.append(pattern(at, 8 * KIB));
    await spool.flush();
  }
  assertEquals(spool.firstOffsets, { stdout: 16 * KIB, stderr: 0 });
  for (const follow of [true, false]) {
    const error = await assertRejects(
      () => collectOutputs({ spool, stdoutOffset: 16 * KIB - 1, follow }),
      AgentError,
    );
    assertEquals(error.kind, "out-of-range");
    assertEquals(
      error.message,
      "stdout offset 16383 is no longer stored: the first stdout offset is 16384 (stdout 16384, stderr 0)",
    );
    assertEquals(error.details, {
      "ateenv-first-stdout-offset": "16384",
      "ateenv-first-stderr-offset": "0",
    });
  }
  const { stdout } = await collectOutputs({ spool, stdoutOffset: 16 * KIB });
  assert(isPattern(16 * KIB, stdout) && stdout.byteLength === 64 * KIB);
});

Deno.test("a follower that is overtaken on the way is told, never moved on", none, async () => {
  const { store } = createMemoryStore({ outputLimitBytes: LIMIT });
  const spool = store.create("/p");
  const outputs = followOutputs({ spool, stdoutOffset: 0, stderrOffset: 0, follow: true });
  spool.stdout.append(pattern(0, 100));
  assertEquals((await outputs.next()).value?.data, pattern(0, 100));
  for (let at = 100; at < 200 * KIB; at += KIB) spool.stdout.append(pattern(at, KIB));
  const error = await assertRejects(() => outputs.next(), AgentError);
  assertEquals(error.kind, "out-of-range");
  assertEquals(
    error.details["ateenv-first-stdout-offset"],
    String(spool.stdout.firstOffset),
  );
  assertEquals(await outputs.next(), { done: true, value: undefined });
  await spool.flush();
});

Deno.test("a segment deleted under a reader gives the error, not wrong bytes", none, async () => {
  const { files, store } = createMemoryStore({ outputLimitBytes: LIMIT });
  const { stdout } = store.create("/p");
  stdout.append(pattern(0, 60 * KIB));
  await stdout.flush();
  const reading = stdout.readAt(0, LIMIT) as Promise<Uint8Array>;
  reading.catch(() => {});
  files.contents.delete("/p/stdout.0");
  for (let at = 60 * KIB; at < 300 * KIB; at += KIB) stdout.append(pattern(at, KIB));
  const error = await assertRejects(() => reading, AgentError);
  assertEquals(error.kind, "out-of-range");
  await stdout.flush();
});

Deno.test(
  "a write that fails after its bytes were dropped leaves no torn segment",
  none,
  async () => {
    const { files, store } = createMemoryStore({ outputLimitBytes: LIMIT });
    const { stdout } = store.create("/p");
    stdout.append(pattern(0, KIB));
    await stdout.flush();
    const release = files.holdWrites();
    for (let at = KIB; at < 401 * KIB; at += 50 * KIB) stdout.append(pattern(at, 50 * KIB));
    files.writeError = new Error("(os error 28)");
    files.partialBytes = 5;
    queueMicrotask(release);
    // Only the write that was held fails.
    const write = stdout.flush();
    while (files.contents.get("/p/stdout.0")?.byteLength === KIB) await Promise.resolve();
    files.writeError = undefined;
    await write;
    await settled();
    assert(!files.names.includes("/p/stdout.0"), String(files.names));
    assertEquals(stdout.firstOffset, stdout.endOffset - LIMIT);
  },
);
