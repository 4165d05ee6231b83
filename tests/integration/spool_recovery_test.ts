// Spools of an agent that is gone, on real files: what can be served again, and what is left alone.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../src/errors.ts";
import { SpoolStore } from "../../src/spool/mod.ts";
import { createTempDir } from "../helpers/state_dir.ts";
import { collectOutputs, isPattern, KeptLog, pattern } from "../helpers/spool_fixture.ts";

const MIB = 1024 * 1024;
const permissions = { permissions: { read: true, write: true } } as const;

function createStore(options: { outputLimitBytes?: number; spoolLimitBytes?: number } = {}) {
  const logger = new KeptLog();
  const store = new SpoolStore({ outputLimitBytes: 0, spoolLimitBytes: 0, logger, ...options });
  return { store, logger };
}

async function namesIn(path: string): Promise<string[]> {
  return (await Array.fromAsync(Deno.readDir(path), ({ name }) => name)).sort();
}

/** Writes output as an agent does that is then killed: nothing is closed in an orderly way. */
async function writeOutput(directory: string, stdoutBytes: number, stderrBytes: number) {
  const { store } = createStore();
  const spool = store.create(directory);
  await spool.stdout.append(pattern(0, stdoutBytes));
  await spool.stderr.append(pattern(0, stderrBytes));
  await spool.flush();
  spool.stdout.end();
  spool.stderr.end();
  await spool.flush();
}

Deno.test("finished output is served again, from any offset", permissions, async () => {
  await using dir = await createTempDir();
  await writeOutput(dir.path, 2.5 * MIB, 10);
  await Deno.writeTextFile(`${dir.path}/finished.json`, "{}");
  const { store, logger } = createStore();
  const spool = await store.recover(dir.path);
  spool.finish(5);
  assertEquals(spool.endOffsets, { stdout: 2.5 * MIB, stderr: 10 });
  assertEquals([store.bytes, store.tailBytes], [2.5 * MIB + 10, 0]);
  const output = await collectOutputs({ spool, stdoutOffset: 1000, follow: true });
  assertEquals(output.stdout.byteLength, 2.5 * MIB - 1000);
  assert(isPattern(1000, output.stdout));
  assertEquals(output.stderr, pattern(0, 10));
  await spool.remove();
  assertEquals(await namesIn(dir.path), ["finished.json"]);
  assertEquals([store.bytes, logger.lines], [0, []]);
});

Deno.test("segments are readable by the agent's user only", permissions, async () => {
  await using dir = await createTempDir();
  await writeOutput(dir.path, 10, 0);
  assertEquals((await Deno.stat(`${dir.path}/stdout.0`)).mode! & 0o777, 0o600);
});

Deno.test("a torn newest segment is served as far as it goes", permissions, async () => {
  await using dir = await createTempDir();
  await writeOutput(dir.path, 2.5 * MIB, 0);
  await Deno.truncate(`${dir.path}/stdout.${2 * MIB}`, 1000);
  const spool = await createStore().store.recover(dir.path);
  assertEquals(spool.endOffsets.stdout, 2 * MIB + 1000);
  assert(isPattern(0, (await collectOutputs({ spool })).stdout));
});

Deno.test("before a gap nothing is kept: the newest run is served", permissions, async () => {
  await using dir = await createTempDir();
  await writeOutput(dir.path, 4 * MIB, 0);
  await Deno.truncate(`${dir.path}/stdout.${MIB}`, 1000);
  const spool = await createStore().store.recover(dir.path);
  assertEquals(spool.firstOffsets.stdout, 2 * MIB);
  assertEquals(await namesIn(dir.path), [`stdout.${2 * MIB}`, `stdout.${3 * MIB}`]);
  const { stdout } = await collectOutputs({ spool, stdoutOffset: 2 * MIB });
  assert(isPattern(2 * MIB, stdout) && stdout.byteLength === 2 * MIB);
  const error = await assertRejects(() => collectOutputs({ spool }), AgentError);
  assertEquals(error.kind, "out-of-range");
});

Deno.test("an empty segment says where lost output ended", permissions, async () => {
  await using dir = await createTempDir();
  await Deno.writeFile(`${dir.path}/stdout.1234`, new Uint8Array(0));
  const spool = await createStore().store.recover(dir.path);
  assertEquals([spool.firstOffsets.stdout, spool.endOffsets.stdout], [1234, 1234]);
  await assertRejects(() => collectOutputs({ spool }), AgentError, "first stdout offset is 1234");
});

Deno.test("foreign names are reported and left alone", permissions, async () => {
  await using dir = await createTempDir();
  await writeOutput(dir.path, 10, 0);
  const foreign = ["stdout.", "stdout.x", "stdout.01", "stdout.-1", "stderr.99999999999999999"];
  for (const name of foreign) await Deno.writeTextFile(`${dir.path}/${name}`, "foreign");
  await Deno.symlink("/etc/hostname", `${dir.path}/stderr.0`);
  await Deno.mkdir(`${dir.path}/stderr.5`);
  await Deno.writeTextFile(`${dir.path}/started.json`, "{}");
  const { store, logger } = createStore();
  const spool = await store.recover(dir.path);
  assertEquals(spool.endOffsets, { stdout: 10, stderr: 0 });
  assertEquals(
    logger.lines.map(({ fields }) => fields["name"] as string).sort(),
    [...foreign, "stderr.0", "stderr.5"].sort(),
  );
  await spool.remove();
  assertEquals((await namesIn(dir.path)).length, 8);
});

Deno.test("a process without output, and a directory that is gone", permissions, async () => {
  await using dir = await createTempDir();
  const { store } = createStore();
  const spool = await store.recover(dir.path);
  assertEquals(await collectOutputs({ spool }), {
    stdout: new Uint8Array(0),
    stderr: new Uint8Array(0),
  });
  const error = await assertRejects(() => store.recover(`${dir.path}/none`), AgentError);
  assertEquals([error.kind, error.message], ["not-found", "cannot read the stored output: ENOENT"]);
});

Deno.test(
  "above the spool limit after a restart: the oldest go, once all are back",
  permissions,
  async () => {
    await using dir = await createTempDir();
    const gone: string[] = [];
    const { store } = createStore({ spoolLimitBytes: 2500 });
    for (const [name, finishedAtMs] of [["b", 200], ["a", 100], ["c", 300]] as const) {
      const path = `${dir.path}/${name}`;
      await Deno.mkdir(path);
      await writeOutput(path, 1000, 0);
      const onEvict = async () => {
        gone.push(name);
        await Deno.remove(path, { recursive: true });
      };
      (await store.recover(path, { onEvict })).finish(finishedAtMs);
    }
    assertEquals(gone, []);
    store.enforceLimit();
    await store.settle();
    assertEquals([gone, store.bytes, await namesIn(dir.path)], [["a"], 2000, ["b", "c"]]);
  },
);
