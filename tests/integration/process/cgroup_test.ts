// --cgroup: what a process does cannot get it, or what it started, out of a kill's reach.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import type { ProcessTable } from "../../../src/process/process_table.ts";
import {
  isAlive,
  NEVER,
  openTestTable,
  readUntil,
  startShell,
  waitFinal,
} from "../../helpers/process_table.ts";
import { createStateDir, createTempDir } from "../../helpers/state_dir.ts";
import { createCgroup, text } from "../../helpers/cgroup.ts";

const probe = await createCgroup();
const ignore = typeof probe === "string";
if (ignore) console.warn(`cgroups are not tested here: ${probe}`);
else await probe[Symbol.asyncDispose]();

/** A directory of cgroups of the test's own. */
async function openCgroup() {
  const cgroup = await createCgroup();
  if (typeof cgroup === "string") throw new Error(cgroup);
  return cgroup;
}

/**
 * Cleared its environment, left the session, was re-parented: nothing tells any more whose it was. As soon
 * as the program runs, so that nobody is quick enough to look before.
 */
const escape = (end: string) =>
  `(env -i setsid sh -c 'echo $$; exec sleep 600' &); read -r _; ${end}`;
const ESCAPE = escape("exec sleep 600");

async function startEscape(table: ProcessTable, script = ESCAPE) {
  const { processId } = await startShell(table, script);
  const pid = Number(await readUntil(table, processId, (text) => text.endsWith("\n")));
  return { processId, pid };
}

Deno.test("a descendant without environment, session and parent is out of reach without a cgroup", async () => {
  await using test = await openTestTable();
  const { processId, pid } = await startEscape(test.table);
  assertEquals(test.table.killReach, "tree");
  await test.table.kill(processId, NEVER);
  assert(await isAlive(pid));
  Deno.kill(pid, "SIGKILL");
});

Deno.test({
  name: "with --cgroup it is killed: running, finished, after a grace, and at a shutdown",
  ignore,
  async fn() {
    await using cgroup = await openCgroup();
    for (const killGraceMs of [0, 5_000]) {
      await using test = await openTestTable({ cgroup: cgroup.path, killGraceMs });
      const { table } = test;
      assertEquals(table.killReach, "cgroup");
      const escapes = await Promise.all(Array.from({ length: 5 }, () => startEscape(table)));
      for (const { processId, pid } of escapes.slice(1)) {
        assertEquals(await table.kill(processId, NEVER), killGraceMs === 0 ? 137 : 143);
        assert(!await isAlive(pid), `${pid} is alive`);
      }
      assert(await isAlive(escapes[0]!.pid), "another process's was killed");
      const finished = await startEscape(table, escape("exit 3"));
      assertEquals((await waitFinal(table, finished.processId)).exitCode, 3);
      assert(await isAlive(finished.pid));
      assertEquals(await table.kill(finished.processId, NEVER), 3);
      assert(!await isAlive(finished.pid));
      const survivor = await startEscape(table, escape("exit 0"));
      await waitFinal(table, survivor.processId);
      await table.shutdown(0);
      for (const { pid } of [escapes[0]!, survivor]) assert(!await isAlive(pid), `${pid} is alive`);
    }
    assertEquals(await cgroup.children(), []);
  },
});

Deno.test({
  name: "with --cgroup, each process is in its own, the agent in none, and none is left behind",
  ignore,
  async fn() {
    await using cgroup = await openCgroup();
    await using test = await openTestTable({ cgroup: cgroup.path });
    const { table } = test;
    const before = await text("cat", `/proc/${Deno.pid}/cgroup`);
    const runs = await Promise.all(
      Array.from(
        { length: 8 },
        () => startShell(table, "grep ^0:: /proc/self/cgroup; read _; sleep 600"),
      ),
    );
    for (const { processId } of runs) {
      const own = await readUntil(table, processId, (text) => text.endsWith("\n"));
      assert(own.endsWith(`/${processId}\n`), own);
    }
    assertEquals(await text("cat", `/proc/${Deno.pid}/cgroup`), before);
    await Promise.all(runs.map(({ processId }) => table.kill(processId, NEVER)));
    assertEquals(await cgroup.children(), []);
  },
});

Deno.test({
  name:
    "with --cgroup, a program that cannot be run and a cwd that is missing are judged as without",
  ignore,
  async fn() {
    await using cgroup = await openCgroup();
    await using test = await openTestTable({ cgroup: cgroup.path });
    const { table } = test;
    const start = (command: string, cwd = "") =>
      table.start({ command: [command], cwd, env: {} }, NEVER);
    assertEquals((await start("no-such-program")).exitCode, 127);
    assertEquals((await start("/dev/null")).exitCode, 126);
    const error = await assertRejects(() => start("true", "/no/such/cwd"), AgentError);
    assertEquals(error.message, 'cwd "/no/such/cwd" does not exist');
    assertEquals((await waitFinal(table, (await start("true")).processId)).exitCode, 0);
    await table.shutdown(0);
    assertEquals(await cgroup.children(), []);
  },
});

Deno.test({
  name:
    "with --cgroup, what a killed agent left is killed at the next start, and its cgroups removed",
  ignore,
  async fn() {
    await using cgroup = await openCgroup();
    await using state = await createStateDir();
    const helpers = JSON.stringify(import.meta.resolve("../../helpers/process_table.ts"));
    const code = `import { openTestTable, startShell, readUntil } from ${helpers};
      const { table } = await openTestTable(
        { cgroup: ${JSON.stringify(cgroup.path)} }, ${JSON.stringify(state.path)});
      const { processId } = await startShell(table, ${JSON.stringify(ESCAPE)});
      const pid = await readUntil(table, processId, (text) => text.endsWith("\\n"));
      console.log(processId + " " + pid.trim());
      setInterval(() => {}, 1000);`;
    await using agent = new Deno.Command(Deno.execPath(), {
      args: ["eval", code],
      stdout: "piped",
    }).spawn();
    let line = "";
    for await (const chunk of agent.stdout.values({ preventCancel: true })) {
      line += new TextDecoder().decode(chunk);
      if (line.endsWith("\n")) break;
    }
    agent.kill("SIGKILL");
    await agent.status;
    await agent.stdout.cancel();
    const [processId, pid] = line.trim().split(" ");
    assert(await isAlive(Number(pid)));
    assertEquals(await cgroup.children(), [processId]);
    await using test = await openTestTable({ cgroup: cgroup.path }, state.path);
    assertEquals(test.table.get(processId!).status, "terminated");
    assert(!await isAlive(Number(pid)));
    assertEquals(await cgroup.children(), []);
  },
});

Deno.test({
  name:
    "with --cgroup, helpers that were killed are replaced, and the agent is never killed with a tree",
  ignore,
  async fn() {
    await using cgroup = await openCgroup();
    await using test = await openTestTable({ cgroup: cgroup.path });
    const { table } = test;
    const { processId, pid } = await startEscape(table);
    // As if the helper had died between a start's two moves: the agent is in the process's cgroup.
    await text("sh", "-c", `echo ${Deno.pid} >${cgroup.path}/${processId}/cgroup.procs`);
    await text(
      "sh",
      "-c",
      `grep -la ateenvd-helper /proc/[0-9]*/cmdline 2>/dev/null | while IFS=/ read -r _ _ pid _; do
         read -r _ _ _ parent _ </proc/$pid/stat && [ "$parent" = ${Deno.pid} ] && kill -KILL $pid
       done; true`,
    );
    assertEquals(await table.kill(processId, NEVER), 137);
    assert(!await isAlive(pid));
    const again = await startEscape(table);
    assertEquals(await table.kill(again.processId, NEVER), 137);
    assert(!await isAlive(again.pid));
  },
});

Deno.test("a directory that is no cgroup v2 is refused at the start, with the reason", async () => {
  await using directory = await createTempDir();
  for (
    const [cgroup, why] of [
      [directory.path, "it is no cgroup v2 directory"],
      [`${directory.path}/none`, "there is no such directory"],
    ] as const
  ) {
    const error = await assertRejects(() => openTestTable({ cgroup }), AgentError);
    assertEquals(error.kind, "failed-precondition");
    assert(error.message.startsWith(`cannot use --cgroup "${cgroup}": ${why}`), error.message);
  }
});
