// A disk that takes nothing: the child goes on, what is lost counts as dropped with all before it.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import {
  collectOutputs,
  createMemoryStore,
  pattern,
  settled,
} from "../../helpers/spool_fixture.ts";

const KIB = 1024;
const none = { permissions: "none" } as const;

function diskFull(): Error {
  return new Error("No space left on device (os error 28)");
}

for (const kind of ["writeError", "createError"] as const) {
  Deno.test(`a hole (${kind}) moves the first offset to its end`, none, async () => {
    const { files, store, logger } = createMemoryStore();
    const { stdout } = store.create("/p");
    stdout.append(pattern(0, 1024 * KIB));
    await stdout.flush();
    files[kind] = diskFull();
    files.partialBytes = 3;
    for (let at = 1024 * KIB; at < 2048 * KIB; at += 64 * KIB) {
      await stdout.append(pattern(at, 64 * KIB));
    }
    await stdout.flush();
    assertEquals([stdout.firstOffset, stdout.endOffset], [2048 * KIB, 2048 * KIB]);
    assertEquals([stdout.bytes, store.bytes, store.tailBytes], [0, 0, 0]);

    files[kind] = undefined;
    stdout.append(pattern(2048 * KIB, 10));
    await stdout.flush();
    assertEquals(await stdout.readAt(2048 * KIB, 100), pattern(2048 * KIB, 10));
    assertEquals(files.names, [`/p/stdout.${2048 * KIB}`]);

    files[kind] = diskFull();
    if (kind === "createError") await stdout.append(pattern(2048 * KIB + 10, 1024 * KIB));
    await stdout.append(pattern(stdout.endOffset, 1024 * KIB));
    await stdout.flush();
    assert(stdout.firstOffset > 2048 * KIB);
    files[kind] = undefined;
    stdout.end();
    await stdout.flush();
    assertEquals(
      logger.lines.map(({ level, message, fields }) => [level, message, fields["stream"]]),
      [["warn", "output lost: cannot store it", "stdout"]],
    );
    assertEquals(files.open, 0);
  });
}

Deno.test("a loss frees what was before it, so that the disk has room again", none, async () => {
  const { files, store } = createMemoryStore();
  const { stdout } = store.create("/p");
  stdout.append(pattern(0, 3000 * KIB));
  await stdout.flush();
  const limit = files.names.length;
  // A disk that is full with the segments there are.
  const create = files.create.bind(files);
  files.create = (path) => files.contents.size >= limit ? Promise.reject(diskFull()) : create(path);
  for (let at = 3000 * KIB; at < 12_000 * KIB; at += 100 * KIB) {
    await stdout.append(pattern(at, 100 * KIB));
  }
  await stdout.flush();
  assert(stdout.firstOffset > 3000 * KIB && stdout.bytes > 0);
  const data = await stdout.readAt(stdout.firstOffset, 100) as Uint8Array;
  assertEquals(data, pattern(stdout.firstOffset, 100));
});

Deno.test("a lost end leaves an empty segment that says where the stream was", none, async () => {
  const { files, store } = createMemoryStore();
  const { stdout } = store.create("/p");
  files.writeError = diskFull();
  stdout.append(pattern(0, 10));
  stdout.end();
  await settled();
  assertEquals(files.names, ["/p/stdout.10"]);
  assertEquals(files.contents.get("/p/stdout.10")?.byteLength, 0);
});

Deno.test(
  "readers of what was lost are told so; the other stream is not touched",
  none,
  async () => {
    const { files, store } = createMemoryStore();
    const spool = store.create("/p");
    spool.stderr.append(pattern(0, 5));
    await spool.flush();
    files.writeError = diskFull();
    spool.stdout.append(pattern(0, 10));
    await spool.flush();
    const error = await assertRejects(() => collectOutputs({ spool }), AgentError);
    assertEquals([error.kind, error.details], ["out-of-range", {
      "ateenv-first-stdout-offset": "10",
      "ateenv-first-stderr-offset": "0",
    }]);
    assertEquals((await collectOutputs({ spool, stdoutOffset: 10 })).stderr, pattern(0, 5));
  },
);

Deno.test("a pump that waits for a full disk goes on", none, async () => {
  const { files, store } = createMemoryStore();
  const { stdout } = store.create("/p");
  files.writeError = diskFull();
  let waits = 0;
  for (let at = 0; at < 4096 * KIB; at += 512 * KIB) {
    const behind = stdout.append(pattern(at, 512 * KIB));
    if (behind !== undefined) waits++;
    await behind;
  }
  assert(waits > 0);
  await stdout.flush();
  assertEquals([stdout.endOffset, stdout.bytes], [4096 * KIB, 0]);
});
