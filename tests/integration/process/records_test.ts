// Records: what survives the death of the agent, what is dropped, what is set aside.
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { openStateDir } from "../../../src/process/state_dir.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";
import { createStateDir, createTempDir } from "../../helpers/state_dir.ts";
import {
  createMemoryLogger,
  isAlive,
  NEVER,
  openTestTable,
  readOutputs,
  startShell,
  type TestTable,
  waitFinal,
} from "../../helpers/process_table.ts";

const HELPERS = JSON.stringify(import.meta.resolve("../../helpers/process_table.ts"));

/** Runs a table in a process of its own until `code` has printed as many lines as it wants. */
async function runThenKill(statePath: string, code: string, lines: number): Promise<string[]> {
  const program = `import { openTestTable, startShell, waitFinal, readUntil } from ${HELPERS};
    const { table } = await openTestTable({}, ${JSON.stringify(statePath)});
    ${code}
    setInterval(() => {}, 1000);`;
  await using agent = new Deno.Command(Deno.execPath(), {
    args: ["eval", program],
    stdout: "piped",
  }).spawn();
  let text = "";
  for await (const chunk of agent.stdout.values({ preventCancel: true })) {
    text += new TextDecoder().decode(chunk);
    if (text.split("\n").length > lines) break;
  }
  agent.kill("SIGKILL");
  await agent.status;
  await agent.stdout.cancel();
  return text.trim().split("\n");
}

async function stdoutOf({ table }: TestTable, processId: string): Promise<string> {
  return new TextDecoder().decode((await readOutputs(table, processId)).stdout);
}

function notFound({ table }: TestTable, processId: string): boolean {
  try {
    table.get(processId);
    return false;
  } catch (error) {
    return error instanceof AgentError && error.kind === "not-found";
  }
}

Deno.test("kill -9 of the agent: finished processes are served, running ones are killed", async () => {
  await using state = await createStateDir();
  const [done, unrun, running, pid, daemon] = await runThenKill(
    state.path,
    `const done = await startShell(table, "echo done; exit 3");
     await waitFinal(table, done.processId);
     const unrun = await table.start({ command: ["no-such"], cwd: "", env: {} }, new AbortController().signal);
     const running = await startShell(table,
       "echo begun; (setsid sleep 600 >/dev/null & echo $! >daemon); echo $$ >leader; exec sleep 600");
     await readUntil(table, running.processId, (text) => text === "begun\\n");
     // Output is written behind: what a client has seen is on disk a moment later.
     const has = (name, size) => { try { return Deno.statSync(name).size >= size; } catch { return false; } };
     const leader = ${JSON.stringify(state.path + "/leader")};
     const stored = ${JSON.stringify(state.path + "/processes/")} + running.processId + "/stdout.0";
     while (!has(leader, 2) || !has(stored, 6)) await new Promise((r) => setTimeout(r, 1));
     const pid = (name) => Deno.readTextFileSync(${JSON.stringify(state.path)} + "/" + name).trim();
     console.log([done.processId, unrun.processId, running.processId, pid("leader"), pid("daemon")].join("\\n"));`,
    5,
  );
  await using test = await openTestTable({}, state.path);
  const { table, lines } = test;
  assertEquals(table.get(done!).exitCode, 3);
  assertEquals(await stdoutOf(test, done!), "done\n");
  assertEquals(table.get(unrun!).exitCode, 127);
  const { status, exitCode, finishedAt } = table.get(running!);
  assertEquals([status, exitCode], ["terminated", 137]);
  assert(finishedAt !== undefined);
  assertEquals(await stdoutOf(test, running!), "begun\n");
  assert(!await isAlive(Number(pid)));
  assert(!await isAlive(Number(daemon)));
  assert(lines.some(({ fields }) => fields["processId"] === running));
});

Deno.test("kill -9 of the agent: a leader that cleared its environment, and its session, are killed", async () => {
  await using state = await createStateDir();
  const [processId, pids] = await runThenKill(
    state.path,
    `const { processId } = await startShell(table,
       "exec env -i sh -c 'sleep 600 & echo $!; (sleep 600 & echo $!); echo $$; exec sleep 600'");
     const pids = await readUntil(table, processId, (text) => text.split("\\n").length > 3);
     // Its line is written by the helper, a moment after the start.
     const record = ${JSON.stringify(state.path)} + "/processes/" + processId + "/started.json";
     while (!Deno.readTextFileSync(record).includes("bootId")) await new Promise((r) => setTimeout(r, 1));
     console.log(processId + "\\n" + pids.trim().split("\\n").join(" "));`,
    2,
  );
  const alive = async () => (await Promise.all(pids!.split(" ").map(Number).map(isAlive)));
  assertEquals(await alive(), [true, true, true]);
  await using test = await openTestTable({}, state.path);
  assertEquals(test.table.get(processId!).status, "terminated");
  assertEquals(await alive(), [false, false, false]);
});

Deno.test("kill -9 of the agent in mid-burst: what had been written can be read", async () => {
  await using state = await createStateDir();
  const [processId] = await runThenKill(
    state.path,
    `const { processId } = await startShell(table, "yes 0123456789abcde");
     await readUntil(table, processId, (text) => text.length > 5_000_000);
     console.log(processId);`,
    1,
  );
  await using test = await openTestTable({}, state.path);
  assertEquals(test.table.get(processId!).status, "terminated");
  const text = await stdoutOf(test, processId!);
  assert(text.length > 0);
  assert(text.startsWith("0123456789abcde\n".repeat(1000)));
  assertEquals(
    text.replaceAll("0123456789abcde\n", ""),
    "0123456789abcde\n".slice(0, text.length % 16),
  );
});

Deno.test("an orderly end and a new start: the same records, in the same order", async () => {
  await using state = await createStateDir();
  const ids: string[] = [];
  {
    await using test = await openTestTable({}, state.path);
    for (let i = 0; i < 5; i++) {
      const { processId } = await startShell(test.table, `echo ${i}; exit ${i}`);
      await waitFinal(test.table, processId);
      ids.push(processId);
    }
  }
  await using test = await openTestTable({ retain: 3 }, state.path);
  await test.table.shutdown(0);
  for (const [i, id] of ids.entries()) {
    assertEquals(notFound(test, id), i < 2, `process ${i}`);
    if (i >= 2) assertEquals(await stdoutOf(test, id), `${i}\n`);
  }
  assertEquals([...Deno.readDirSync(`${state.path}/processes`)].length, 3);
});

Deno.test("torn, foreign and unanswered things: set aside, ended, or deleted", async () => {
  await using state = await createStateDir();
  const processes = `${state.path}/processes`;
  let whole: string;
  {
    await using test = await openTestTable({}, state.path);
    whole = (await startShell(test.table, "echo whole; exit 1")).processId;
    await waitFinal(test.table, whole);
  }
  const copy = async (id: string, edit: Record<string, string>) => {
    await Deno.mkdir(`${processes}/${id}`);
    for (const name of ["started.json", "finished.json", "stdout.0"]) {
      const text = await Deno.readTextFile(`${processes}/${whole}/${name}`);
      await Deno.writeTextFile(
        `${processes}/${id}/${name}`,
        edit[name] ?? text.replaceAll(whole, id),
      );
    }
  };
  const torn = "1".repeat(32);
  const empty = "2".repeat(32);
  const unanswered = "3".repeat(32);
  const swapped = "4".repeat(32);
  await copy(torn, { "finished.json": '{"exit":{"code":1' });
  await copy(empty, { "finished.json": "" });
  await copy(unanswered, { "started.json": "" });
  await copy(swapped, {
    "started.json": await Deno.readTextFile(`${processes}/${whole}/started.json`),
  });
  await Deno.mkdir(`${processes}/foreign`);
  await Deno.writeTextFile(`${processes}/note`, "x");
  await Deno.symlink("/etc", `${processes}/${"5".repeat(32)}`);
  await using orphan = new Deno.Command("sleep", {
    args: ["600"],
    env: { ATEENV_PROCESS_ID: unanswered },
  }).spawn();

  await using test = await openTestTable({}, state.path);
  assertEquals((await orphan.status).signal, "SIGKILL");
  assertEquals(test.table.get(whole).exitCode, 1);
  for (const id of [torn, empty]) {
    assertEquals([test.table.get(id).status, test.table.get(id).exitCode], ["terminated", 137]);
    assertEquals(await stdoutOf(test, id), "whole\n");
  }
  for (const id of [unanswered, swapped]) assert(notFound(test, id));
  const left = [...Deno.readDirSync(processes)].map(({ name }) => name).sort();
  assertEquals(left, [torn, empty, whole].sort());
  const aside = [...Deno.readDirSync(`${state.path}/aside`)].map(({ name }) => name).sort();
  assertEquals(aside, ["5".repeat(32), "foreign", "note"]);
  assertEquals(test.lines.filter(({ message }) => message === "set aside").length, 3);
});

Deno.test("retention: the newest ones by number, all by age, running ones never", async () => {
  const clock = new FakeClock();
  await using test = await openTestTable({ retain: 2, retainForMs: 1_000, clock });
  const { table } = test;
  const running = await startShell(table, "exec sleep 600");
  const ids: string[] = [];
  for (let i = 0; i < 3; i++) {
    const { processId } = await startShell(table, `echo ${i}`);
    await waitFinal(table, processId);
    ids.push(processId);
    clock.advance(100);
  }
  assertEquals(ids.map((id) => notFound(test, id)), [true, false, false]);
  clock.jumpWall(86_400_000);
  clock.advance(850);
  assertEquals(ids.map((id) => notFound(test, id)), [true, true, false]);
  clock.advance(100);
  assertEquals(ids.map((id) => notFound(test, id)), [true, true, true]);
  assertEquals(table.get(running.processId).status, "running");
  await table.shutdown(0);
  assertEquals([...Deno.readDirSync(`${test.statePath}/processes`)].length, 1);
});

Deno.test("the spool limit drops the record with the output, oldest first", async () => {
  await using test = await openTestTable({ spoolLimitBytes: 2_500_000 });
  const { table } = test;
  const ids: string[] = [];
  for (let i = 0; i < 3; i++) {
    const { processId } = await startShell(table, "head -c 1000000 /dev/zero");
    await waitFinal(table, processId);
    ids.push(processId);
  }
  assertEquals(ids.map((id) => notFound(test, id)), [true, false, false]);
  await table.shutdown(0);
  assertEquals([...Deno.readDirSync(`${test.statePath}/processes`)].length, 2);
});

Deno.test("a full state directory: starts are refused and leave nothing, what runs becomes final", async () => {
  await using directory = await createTempDir();
  const { path } = directory;
  const root = (command: string, ...args: string[]) =>
    new Deno.Command(command, { args, stderr: "null" }).output();
  const { success } = await root("mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", path);
  if (!success) return console.warn("SKIPPED: may not mount a tmpfs");
  try {
    await Deno.symlink("/proc", `${path}/proc`);
    let ids: string[];
    {
      await using test = await openTestTable({ killGraceMs: 5_000 }, path);
      const { table, statePath, lines } = test;
      const running = await Promise.all([1, 2, 3].map(() => startShell(table, "exec sleep 600")));
      ids = running.map(({ processId }) => processId);
      const full = await root("dd", "if=/dev/zero", `of=${path}/filler`, "bs=4096");
      assert(!full.success);
      for (let i = 0; i < 3; i++) {
        const error = await assertRejects(() => startShell(table, "exec sleep 600"), AgentError);
        assertEquals(error.kind, "resource-exhausted");
        assert(error.message.endsWith("ENOSPC"), error.message);
      }
      const unrun = table.start({ command: ["no-such-program"], cwd: "", env: {} }, NEVER);
      assertEquals((await assertRejects(() => unrun, AgentError)).kind, "resource-exhausted");
      assertEquals(await table.kill(ids[0]!, NEVER), 143);
      assertEquals(table.get(ids[0]!).status, "terminated");
      await Promise.all(ids.map((id) => table.kill(id, NEVER)));
      await table.shutdown(0);
      assertEquals(table.metrics().running, 0);
      assertEquals(
        [...Deno.readDirSync(`${statePath}/processes`)].map(({ name }) => name).sort(),
        ids.toSorted(),
      );
      assertEquals(lines.filter(({ level }) => level === "error"), []);
    }
    // What the kernel reported has found its place, without a byte to spare.
    await using test = await openTestTable({}, path);
    assertEquals(ids.map((id) => test.table.get(id).exitCode), [143, 143, 143]);
    await Deno.remove(`${path}/filler`);
    assertEquals(
      (await waitFinal(test.table, (await startShell(test.table, "exit 4")).processId)).exitCode,
      4,
    );
  } finally {
    await root("umount", path);
  }
});

Deno.test("a second agent on one state directory is refused", async () => {
  await using state = await createStateDir();
  await using _test = await openTestTable({}, state.path);
  const error = await assertRejects(() => openTestTable({}, state.path), AgentError);
  assertEquals(error.kind, "failed-precondition");
  assert(error.message.includes("in use by another agent"));
});

Deno.test("an unknown format is refused, and nothing is changed", async () => {
  await using state = await createStateDir();
  await Deno.writeTextFile(`${state.path}/format`, "2\n");
  const { log } = createMemoryLogger();
  const open = () => openStateDir({ path: state.path, isShared: false, log });
  const error = assertThrows(open, AgentError);
  assertEquals(error.kind, "failed-precondition");
  assert(error.message.includes('format version "2"'));
  assertEquals(await Deno.readTextFile(`${state.path}/format`), "2\n");
  assertEquals([...Deno.readDirSync(state.path)].map(({ name }) => name).sort(), [
    "format",
    "lock",
    "proc",
  ]);
});

Deno.test("a shared state directory must be ours, 0700 and no link", async () => {
  await using state = await createStateDir();
  const { log } = createMemoryLogger();
  const open = (path: string) => openStateDir({ path, isShared: true, log });
  open(state.path)[Symbol.dispose]();
  await Deno.symlink(state.path, `${state.path}/link`);
  for (
    const [path, mode, text] of [
      [`${state.path}/link`, 0o700, "is a link"],
      [state.path, 0o755, "mode 0755"],
      [state.path, 0o770, "mode 0770"],
    ] as const
  ) {
    await Deno.chmod(state.path, mode);
    const error = assertThrows(() => open(path), AgentError);
    assert(error.message.includes(text), error.message);
  }
  await Deno.chmod(state.path, 0o700);
  if (Deno.uid() !== 0) return;
  await Deno.chown(state.path, 12345, null);
  assert(assertThrows(() => open(state.path), AgentError).message.includes("another user"));
});

Deno.test("200 short processes leave no descriptor and no directory beyond those retained", async () => {
  await using test = await openTestTable({ retain: 20 });
  const { table, statePath } = test;
  const descriptors = () => [...Deno.readDirSync(`${statePath}/proc/self/fd`)].length;
  const before = descriptors();
  for (let i = 0; i < 20; i++) {
    const runs = Array.from({ length: 10 }, async () => {
      await waitFinal(table, (await startShell(table, "echo x")).processId);
    });
    await Promise.all(runs);
  }
  await table.shutdown(0);
  assert(descriptors() <= before);
  assertEquals([...Deno.readDirSync(`${statePath}/processes`)].length, 20);
  assertEquals(NEVER.aborted, false);
});
