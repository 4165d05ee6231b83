// --spool-limit: finished processes go first, oldest first, then the oldest bytes of the largest streams.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { followOutputs } from "../../../src/spool/mod.ts";
import { createMemoryStore, isPattern, pattern, settled } from "../../helpers/spool_fixture.ts";

const MIB = 1024 * 1024;
const none = { permissions: "none" } as const;

Deno.test(
  "finished processes go, oldest finish first, and their owners hear of it",
  none,
  async () => {
    const { files, store, logger } = createMemoryStore({ spoolLimitBytes: 4 * MIB });
    const gone: string[] = [];
    const [a, b, c] = ["a", "b", "c"].map((name) =>
      store.create(`/${name}`, {
        onEvict: () => {
          gone.push(name);
          assert(files.names.every((path) => path.startsWith("/")));
        },
      })
    );
    a!.stdout.append(pattern(0, MIB));
    b!.stderr.append(pattern(0, MIB));
    for (const spool of [a!, b!]) await spool.flush();
    b!.finish(100);
    a!.finish(200);
    await c!.stdout.append(pattern(0, 2 * MIB));
    assertEquals([gone, store.bytes], [[], 4 * MIB]);
    c!.stdout.append(pattern(2 * MIB, 1));
    await store.settle();
    assertEquals([gone, store.bytes], [["b"], 3 * MIB + 1]);
    await c!.stdout.append(pattern(2 * MIB + 1, MIB));
    await store.settle();
    await c!.flush();
    assertEquals([gone, store.bytes], [["b", "a"], 3 * MIB + 1]);
    assertEquals([b!.removed, c!.removed, c!.stdout.firstOffset], [true, false, 0]);
    assert(files.names.every((path) => path.startsWith("/c/")));
    assertEquals(logger.lines.map(({ level }) => level), ["info", "info"]);
  },
);

Deno.test(
  "the record goes before the files, and a failing owner changes nothing",
  none,
  async () => {
    const { files, store, logger } = createMemoryStore({ spoolLimitBytes: MIB });
    const left: string[][] = [];
    const owner = {
      onEvict: async () => {
        await settled();
        left.push(files.names.filter((path) => path.startsWith("/old/")));
        throw new Error("no such record");
      },
    };
    const old = store.create("/old", owner);
    old.stdout.append(pattern(0, 1000));
    await old.flush();
    old.finish();
    await store.create("/new").stdout.append(pattern(0, MIB));
    await store.settle();
    assertEquals(left, [["/old/stdout.0"]]);
    assert(!files.names.includes("/old/stdout.0"));
    assertEquals(logger.lines.at(-1)?.message, "cannot drop the record of a process");
  },
);

Deno.test("a reader of a process that is dropped gets an error at its offset", none, async () => {
  const { store } = createMemoryStore({ spoolLimitBytes: 2 * MIB });
  const old = store.create("/old");
  await old.stdout.append(pattern(0, 2 * MIB));
  await old.flush();
  old.finish();
  const outputs = followOutputs({
    spool: old,
    stdoutOffset: 0,
    stderrOffset: 0,
    follow: true,
    maxPieceBytes: 1000,
  });
  await outputs.next();
  store.create("/new").stdout.append(pattern(0, 1));
  const read = async () => {
    // What had been read ahead may still come.
    for await (const _ of outputs);
  };
  const error = await assertRejects(read, AgentError);
  assertEquals(error.kind, "out-of-range");
  assertEquals(error.details["ateenv-first-stdout-offset"], String(2 * MIB));
  await store.settle();
});

Deno.test("then the oldest segments of the largest running stream go", none, async () => {
  const { store } = createMemoryStore({ spoolLimitBytes: 8 * MIB });
  const [small, large] = [store.create("/small"), store.create("/large")];
  for (let at = 0; at < 6 * MIB; at += MIB) await large.stdout.append(pattern(at, MIB));
  await small.stderr.append(pattern(0, 2 * MIB));
  for (const spool of [large, small]) await spool.flush();
  await small.stderr.append(pattern(2 * MIB, 1));
  assertEquals(
    [large.stdout.firstOffset, small.stderr.firstOffset, store.bytes],
    [MIB, 0, 7 * MIB + 1],
  );
  await small.flush();
});

Deno.test("a running stream keeps one MiB, whatever the limit", none, async () => {
  const { files, store } = createMemoryStore({ spoolLimitBytes: 64 * 1024 });
  const spools = [store.create("/a"), store.create("/b")];
  for (let at = 0; at < 4 * MIB; at += MIB / 4) {
    for (const { stdout } of spools) {
      await stdout.append(pattern(at, MIB / 4));
      await stdout.flush();
      assert(stdout.bytes >= Math.min(MIB, stdout.endOffset));
      assert(stdout.bytes <= 2 * MIB + MIB / 4);
      assert(isPattern(stdout.firstOffset, (await stdout.readAt(stdout.firstOffset, MIB))!));
    }
  }
  for (const { stdout } of spools) await stdout.flush();
  const onDisk = [...files.contents.values()].reduce((sum, c) => sum + c.byteLength, 0);
  assertEquals(onDisk, store.bytes);
  for (const spool of spools) await spool.remove();
  assertEquals(store.bytes, 0);
});

Deno.test("a limit that could not be kept for a while is kept again later", none, async () => {
  const { store } = createMemoryStore({ spoolLimitBytes: MIB });
  const many = Array.from({ length: 8 }, (_, index) => store.create(`/${index}`));
  for (const { stdout } of many) await stdout.append(pattern(0, MIB));
  assertEquals(store.bytes, 8 * MIB);
  await Promise.all(many.map((spool) => spool.remove()));
  const { stdout } = store.create("/p");
  for (let at = 0; at < 6 * MIB; at += MIB / 4) {
    await stdout.append(pattern(at, MIB / 4));
    await stdout.flush();
    assert(store.bytes <= 2.5 * MIB, `${store.bytes}`);
  }
});

Deno.test("late output of a process that was dropped is taken and thrown away", none, async () => {
  const { files, store } = createMemoryStore({ spoolLimitBytes: MIB });
  const created: string[] = [];
  const create = files.create.bind(files);
  files.create = (path) => {
    created.push(path);
    return create(path);
  };
  const spool = store.create("/p");
  spool.finish();
  await spool.stdout.append(pattern(0, MIB + 1));
  await spool.stdout.append(pattern(MIB + 1, 10));
  await store.settle();
  assertEquals([store.bytes, spool.removed, files.names, files.open], [0, true, [], 0]);
  assertEquals(created, [], "its directory is being deleted");
});

Deno.test("no limit: nothing goes", none, async () => {
  const { store } = createMemoryStore();
  const spool = store.create("/p");
  spool.finish();
  for (let at = 0; at < 4 * MIB; at += MIB) await spool.stdout.append(pattern(at, MIB));
  await spool.flush();
  assertEquals(store.bytes, 4 * MIB);
});
