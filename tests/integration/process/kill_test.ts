// Kill: nothing of a tree is left once it has answered, and nothing else is touched.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import type { ProcessTable } from "../../../src/process/process_table.ts";
import {
  isAlive,
  NEVER,
  openTestTable,
  readOutputs,
  readUntil,
  startShell,
  waitFinal,
} from "../../helpers/process_table.ts";

/** Of 50 kills each. The soak run takes 20. */
const BATCHES = Number(Deno.env.get("ATEENV_TEST_KILL_BATCHES") ?? 4);

/** Starts a script that prints pids, one a line and no more, and waits for `count` of them. */
async function startTree(table: ProcessTable, count: number, script: string) {
  const { processId } = await startShell(table, script);
  const text = await readUntil(table, processId, (text) => text.split("\n").length > count);
  return { processId, pids: text.trim().split("\n").map(Number) };
}

async function assertGone(pids: readonly number[]): Promise<void> {
  for (const pid of pids) assert(!await isAlive(pid), `${pid} is alive`);
}

Deno.test("kill of a tree with setsid and double fork: no pid left, its port free again", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const server = `const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    console.log(Deno.pid + " " + listener.addr.port); for await (const _ of listener);`;
  const { processId } = await table.start({
    command: [
      "sh",
      "-c",
      '(setsid "$0" eval "$1" & ) ; (setsid sh -c "sleep 600 & echo \\$! 0; wait" &); echo $$ 0; wait; exec sleep 600',
      Deno.execPath(),
      server,
    ],
    cwd: "",
    env: {},
  }, NEVER);
  const text = await readUntil(table, processId, (text) => text.split("\n").length > 3);
  const lines = text.trim().split("\n").map((line) => line.split(" ").map(Number));
  const port = Math.max(...lines.map(([, port]) => port!));
  assertEquals(await table.kill(processId, NEVER), 137);
  await assertGone(lines.map(([pid]) => pid!));
  Deno.listen({ hostname: "127.0.0.1", port }).close();
  assertEquals(table.get(processId).status, "terminated");
});

Deno.test("kill during a fork storm, 20 times: repeated until it answers, nothing is left", async () => {
  await using test = await openTestTable();
  const { table } = test;
  // Forks 2^5 - 1 times in all, half of it into sessions of its own, and each child prints its pid.
  const storm = `storm() {
    echo $(exec sh -c 'echo $PPID')
    [ "$1" -le 0 ] && exec sleep 60
    storm $(($1 - 1)) &
    (setsid sh -c "$BODY; storm $(($1 - 1))" &)
    wait; exec sleep 60
  }`;
  for (let round = 0; round < 20; round++) {
    const { processId } = await table.start({
      command: ["sh", "-c", 'eval "$BODY"; storm 5'],
      cwd: "",
      env: { BODY: storm },
    }, NEVER);
    await readUntil(table, processId, (text) => text.split("\n").length > 1 + round * 3);
    let code: number | undefined;
    while (code === undefined) {
      code = await table.kill(processId, NEVER).catch((error) => {
        assertEquals(error.kind, "deadline-exceeded");
        return undefined;
      });
    }
    assertEquals(code, 137);
    const { stdout } = await readOutputs(table, processId);
    await assertNoneLeft(processId);
    assert(stdout.byteLength > 0);
  }
});

/** Looks for the marker with means of its own. */
async function assertNoneLeft(processId: string): Promise<void> {
  const { stdout } = await new Deno.Command("sh", {
    args: ["-c", `grep -lsa "ATEENV_PROCESS_ID=${processId}" /proc/[0-9]*/environ || true`],
    stderr: "null",
  }).output();
  assertEquals(new TextDecoder().decode(stdout), "");
}

Deno.test("a chain in which each process forks the next one and exits is caught", async () => {
  await using test = await openTestTable();
  const { table } = test;
  // Ends by itself after 3,000 links; in one process group, as a shell's background jobs are.
  const { processId } = await table.start({
    command: ["sh", "-c", 'eval "$BODY"; link 3000'],
    cwd: "",
    env: { BODY: 'link() { echo x; [ "$1" -le 0 ] && exit; (link $(($1 - 1))) & }' },
  }, NEVER);
  await readUntil(table, processId, (text) => text.length > 40);
  await table.kill(processId, NEVER);
  await assertNoneLeft(processId);
});

Deno.test("processes that trap TERM, and stopped ones, are killed", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const { processId, pids } = await startTree(
    table,
    3,
    `trap '' TERM
     sh -c 'echo $$; kill -STOP $$; sleep 600' &
     sh -c 'trap "" TERM; echo $$; while :; do sleep 600; done' &
     echo $$; wait; exec sleep 600`,
  );
  assertEquals(await table.kill(processId, NEVER), 137);
  await assertGone(pids);
});

Deno.test("kill at the instant of natural exit, many times: always final, nothing RUNNING", async () => {
  await using test = await openTestTable({ maxProcesses: 0 });
  const { table } = test;
  let natural = 0;
  for (let batch = 0; batch < BATCHES; batch++) {
    const runs = Array.from({ length: 50 }, async (_, i) => {
      const command = i % 2 === 0 ? ["true"] : ["sleep", `0.0${i}`];
      const { processId } = await table.start({ command, cwd: "", env: {} }, NEVER);
      const code = await table.kill(processId, NEVER);
      const { status, exitCode } = table.get(processId);
      assertEquals(exitCode, code);
      assert(status === "completed" ? code === 0 : status === "terminated" && code === 137);
      if (code === 0) natural++;
    });
    await Promise.all(runs);
    assertEquals(table.metrics().running, 0);
  }
  assert(natural > 0, "no process was quicker than its kill");
});

Deno.test("kill of a finished process: its stored code, its surviving descendants gone", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const { processId, pids } = await startTree(
    table,
    3,
    `(setsid sleep 600 >/dev/null 2>&1 & echo $!)
     sleep 600 >/dev/null 2>&1 & echo $!
     env -i sleep 600 >/dev/null 2>&1 & echo $!
     exit 7`,
  );
  assertEquals((await waitFinal(table, processId)).exitCode, 7);
  for (const pid of pids) assert(await isAlive(pid));
  assertEquals(await table.kill(processId, NEVER), 7);
  await assertGone(pids);
  assertEquals(table.get(processId).status, "failed");
  assertEquals(await table.kill(processId, NEVER), 7);
});

Deno.test("two trees that interleave: only the one that was named is killed", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const a = await startTree(table, 2, "setsid sleep 600 & echo $!; echo $$; wait");
  // Within the first tree by its marker only: what is started there says that it is of the second.
  const b = await startTree(
    table,
    2,
    `env -i sleep 600 & echo $!; echo $$; wait`,
  );
  const borrowed = await table.start({
    command: [
      "sh",
      "-c",
      `ATEENV_PROCESS_ID=${b.processId} sleep 600 & echo $!; sleep 600 & echo $!; wait`,
    ],
    cwd: "",
    env: {},
  }, NEVER);
  const text = await readUntil(table, borrowed.processId, (text) => text.split("\n").length > 2);
  const [lent, own] = text.trim().split("\n").map(Number);
  await table.kill(borrowed.processId, NEVER);
  assert(!await isAlive(own!));
  assert(await isAlive(lent!), "a process with another's marker was killed");
  for (const pid of [...a.pids, ...b.pids]) assert(await isAlive(pid), `${pid} was killed`);
  await table.kill(b.processId, NEVER);
  await assertGone([lent!, ...b.pids]);
  for (const pid of a.pids) assert(await isAlive(pid));
  assertEquals(table.get(a.processId).status, "running");
});

Deno.test("50 kills at once share their looks", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const runs = await Promise.all(
    Array.from({ length: 50 }, () => startShell(table, "sleep 600 & wait")),
  );
  const codes = await Promise.all(runs.map(({ processId }) => table.kill(processId, NEVER)));
  assertEquals(codes, Array(50).fill(137));
});

Deno.test("with a grace: TERM first, and the exit that the program chose", async () => {
  await using test = await openTestTable({ killGraceMs: 20_000 });
  const { table } = test;
  const polite = await startTree(
    table,
    1,
    "trap 'exit 0' TERM; echo $$; while :; do sleep 1; done",
  );
  assertEquals(await table.kill(polite.processId, NEVER), 0);
  assertEquals(table.get(polite.processId).status, "completed");
  const plain = await startTree(table, 1, "echo $$; exec sleep 600");
  assertEquals(await table.kill(plain.processId, NEVER), 143);
  const stopped = await startTree(table, 1, "echo $$; kill -STOP $$");
  assertEquals(await table.kill(stopped.processId, NEVER), 143);
});

Deno.test("with a grace: KILL for what is there after it", async () => {
  await using test = await openTestTable({ killGraceMs: 100 });
  const { table } = test;
  const { processId, pids } = await startTree(
    table,
    2,
    "trap '' TERM; sleep 600 & echo $!; echo $$; wait; exec sleep 600",
  );
  assertEquals(await table.kill(processId, NEVER), 137);
  await assertGone(pids);
});

Deno.test("a kill whose client has gone goes on", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const { processId, pids } = await startTree(table, 1, "echo $$; exec sleep 600");
  const client = new AbortController();
  const killing = table.kill(processId, client.signal);
  client.abort();
  assertEquals((await assertRejects(() => killing, AgentError)).kind, "cancelled");
  assertEquals((await waitFinal(table, processId)).exitCode, 137);
  await assertGone(pids);
});

Deno.test("a helper that was killed is replaced", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const { processId, pids } = await startTree(table, 1, "(setsid sleep 600 & echo $!); sleep 600");
  const { stdout } = await new Deno.Command("sh", {
    args: [
      "-c",
      `grep -la ateenvd-helper /proc/[0-9]*/cmdline 2>/dev/null | while IFS=/ read -r _ _ pid _; do
         read -r _ _ _ parent _ </proc/$pid/stat && [ "$parent" = ${Deno.pid} ] && kill -KILL $pid
       done; true`,
    ],
  }).output();
  assertEquals(stdout.byteLength, 0);
  assertEquals(await table.kill(processId, NEVER), 137);
  await assertGone(pids);
});
