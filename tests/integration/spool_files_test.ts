// The spool on real files: descriptors, a full disk, a directory that vanishes.
import { assert, assertEquals } from "@std/assert";
import { followOutputs, SpoolStore } from "../../src/spool/mod.ts";
import { createStateDir, createTempDir } from "../helpers/state_dir.ts";
import { collectOutputs, isPattern, KeptLog, pattern } from "../helpers/spool_fixture.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const permissions = { permissions: { read: true, write: true } } as const;

function createStore(outputLimitBytes = 0) {
  const logger = new KeptLog();
  return { logger, store: new SpoolStore({ outputLimitBytes, spoolLimitBytes: 0, logger }) };
}

Deno.test("two descriptors a process, none for a reader that waits", permissions, async () => {
  await using state = await createStateDir();
  const directory = `${state.path}/p`;
  await Deno.mkdir(directory);
  // Read through links, since what /proc holds cannot be opened under a scoped policy.
  const openSegments = async () => {
    const names: string[] = [];
    for await (const { name } of Deno.readDir(`${state.path}/proc/self/fd`)) {
      const target = await Deno.readLink(`${state.path}/proc/self/fd/${name}`).catch(() => "");
      if (target.startsWith(directory)) names.push(target.slice(directory.length + 1));
    }
    return names.sort();
  };
  const { store } = createStore();
  const spool = store.create(directory);
  assertEquals(await openSegments(), []);
  for (let at = 0; at < 3 * MIB; at += MIB) {
    await spool.stdout.append(pattern(at, MIB));
    await spool.stderr.append(pattern(at, MIB));
  }
  await spool.flush();
  const open = [`stderr.${2 * MIB}`, `stdout.${2 * MIB}`];
  assertEquals(await openSegments(), open);
  const readers = Array.from(
    { length: 20 },
    () => followOutputs({ spool, stdoutOffset: 0, stderrOffset: 0, follow: true }),
  );
  for (const reader of readers) await reader.next();
  for (const reader of readers) await reader.next();
  await Promise.all(readers.map((reader) => reader.return!()));
  assertEquals(await openSegments(), open);
  spool.stdout.end();
  spool.stderr.end();
  await spool.flush();
  assertEquals(await openSegments(), []);
});

Deno.test(
  "many readers and a flood with a limit: every byte is right or refused",
  permissions,
  async () => {
    await using dir = await createTempDir();
    const { store } = createStore(2 * MIB);
    const spool = store.create(dir.path);
    const outcomes = Array.from({ length: 8 }, async (_, index) => {
      let at = 0;
      try {
        for await (
          const { data } of followOutputs({
            spool,
            stdoutOffset: 0,
            stderrOffset: 0,
            follow: true,
          })
        ) {
          assert(isPattern(at, data));
          at += data.byteLength;
          // Every second reader is slow, and will be overtaken.
          if (index % 2 === 1) await spool.flush();
        }
        return at;
      } catch (error) {
        assertEquals((error as { kind?: string }).kind, "out-of-range");
        return -1;
      }
    });
    const total = 16 * MIB;
    for (let at = 0; at < total; at += 128 * KIB) await spool.stdout.append(pattern(at, 128 * KIB));
    spool.stdout.end();
    spool.stderr.end();
    spool.finish();
    for (const outcome of await Promise.all(outcomes)) assert(outcome === -1 || outcome === total);
    await spool.flush();
    const { stdout } = await collectOutputs({ spool, stdoutOffset: spool.firstOffsets.stdout });
    assert(stdout.byteLength >= 2 * MIB && stdout.byteLength <= 2.25 * MIB);
    assert(isPattern(spool.firstOffsets.stdout, stdout));
  },
);

Deno.test("a directory that vanishes costs the output, not the child", permissions, async () => {
  await using dir = await createTempDir();
  const { store, logger } = createStore();
  const spool = store.create(`${dir.path}/gone`);
  spool.stdout.append(pattern(0, 10));
  await spool.flush();
  spool.stdout.append(pattern(10, 10));
  await spool.flush();
  assertEquals(spool.firstOffsets.stdout, 20);
  assertEquals(logger.lines.length, 1);
  await spool.remove();
});

/** Mounts a small file system; undefined where that is not permitted. */
async function mountTmpfs(path: string, size: string): Promise<AsyncDisposable | undefined> {
  const run = (command: string, args: string[]) =>
    new Deno.Command(command, { args, stdout: "null", stderr: "null" }).output();
  const { success } = await run("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", path]);
  if (!success) return undefined;
  return {
    async [Symbol.asyncDispose]() {
      await run("umount", ["-l", path]);
    },
  };
}

Deno.test({
  name: "a full disk: lost output is named, later output is stored once there is room",
  permissions: { read: true, write: true, run: ["mount", "umount"] },
  // Mounting needs root; the same rules are tested with failing writes in tests/unit/spool.
  ignore: Deno.uid() !== 0,
  fn: async () => {
    await using dir = await createTempDir();
    await using mounted = await mountTmpfs(dir.path, "4m");
    if (mounted === undefined) return;
    const { store, logger } = createStore();
    await Deno.writeFile(`${dir.path}/ballast`, new Uint8Array(2 * MIB));
    const spool = store.create(dir.path);
    let at = 0;
    const write = async (bytes: number) => {
      for (const end = at + bytes; at < end; at += 64 * KIB) {
        await spool.stdout.append(pattern(at, 64 * KIB));
      }
      await spool.flush();
    };
    await write(8 * MIB);
    const first = spool.firstOffsets.stdout;
    assert(first > 0, "not all of it fits");
    assertEquals(spool.endOffsets.stdout, at);
    const kept = await collectOutputs({ spool, stdoutOffset: first });
    assertEquals(kept.stdout.byteLength, at - first);
    assert(isPattern(first, kept.stdout));

    await Deno.remove(`${dir.path}/ballast`);
    const from = at;
    await write(MIB);
    const later = await collectOutputs({ spool, stdoutOffset: from });
    assert(later.stdout.byteLength === MIB && isPattern(from, later.stdout));
    assertEquals(logger.lines.map(({ message }) => message), ["output lost: cannot store it"]);

    spool.stdout.end();
    spool.stderr.end();
    await spool.flush();
    const again = await createStore().store.recover(dir.path);
    assertEquals(again.endOffsets.stdout, at);
    const recovered = await collectOutputs({
      spool: again,
      stdoutOffset: again.firstOffsets.stdout,
    });
    assert(isPattern(again.firstOffsets.stdout, recovered.stdout));
    await spool.remove();
  },
});
