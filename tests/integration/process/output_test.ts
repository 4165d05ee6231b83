// Output and finality: complete when the pipes are closed, never late when they are held.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import {
  isAlive,
  NEVER,
  openTestTable,
  readOutputs,
  readUntil,
  startShell,
  waitFinal,
} from "../../helpers/process_table.ts";

Deno.test("300,000 bytes and exit 3, repeated: complete at the moment of finality", async () => {
  await using test = await openTestTable();
  const { table } = test;
  for (let round = 0; round < 15; round++) {
    const { processId } = await startShell(
      table,
      "head -c 300000 /dev/zero; head -c 1000 /dev/zero >&2; exit 3",
    );
    const { exitCode } = await waitFinal(table, processId);
    const { stdout, stderr } = await readOutputs(table, processId, { follow: false });
    assertEquals([exitCode, stdout.byteLength, stderr.byteLength], [3, 300_000, 1_000]);
  }
});

Deno.test("a descendant that holds the pipes delays finality by the drain window only", async () => {
  await using test = await openTestTable({ drainWindowMs: 100 });
  const { table } = test;
  const { processId } = await startShell(table, "sleep 30 & echo held; exit 0");
  const { status, exitCode } = await waitFinal(table, processId);
  assertEquals([status, exitCode], ["completed", 0]);
  const { stdout } = await readOutputs(table, processId);
  assertEquals(new TextDecoder().decode(stdout), "held\n");
  assertEquals(await table.kill(processId, NEVER), 0);
});

Deno.test("output after the leader's exit is drained and appended, its writer lives", async () => {
  await using test = await openTestTable({ drainWindowMs: 50 });
  const { table, statePath } = test;
  const { processId } = await startShell(
    table,
    `mkfifo go done
     (read -r _ <go; head -c 100000 /dev/zero; echo ok >done) & echo $!; exit 0`,
  );
  const { status } = await waitFinal(table, processId);
  assertEquals(status, "completed");
  const before = (await readOutputs(table, processId)).stdout;
  const pid = Number(new TextDecoder().decode(before));
  assert(await isAlive(pid));
  await Deno.writeTextFile(`${statePath}/go`, "\n");
  assertEquals(await Deno.readTextFile(`${statePath}/done`), "ok\n");
  // The last write is in the pipe; the pump reads it in a later turn.
  let size = 0;
  while (size < before.byteLength + 100_000) {
    size = (await readOutputs(table, processId, { follow: false })).stdout.byteLength;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  assertEquals(size, before.byteLength + 100_000);
});

Deno.test("a child that closes stdout and goes on", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const { processId } = await startShell(
    table,
    "echo out; exec >&-; echo err >&2; mkfifo go; echo ready >&2; read -r _ <go; echo late >&2; exit 4",
  );
  const request = { processId, stdoutOffset: 0, stderrOffset: 0, follow: true };
  const decoder = new TextDecoder();
  let stderr = "";
  for await (const { source, data } of table.outputs(request, NEVER)) {
    if (source === "stderr") stderr += decoder.decode(data);
    if (!stderr.endsWith("ready\n")) continue;
    assertEquals(table.get(processId).status, "running");
    await Deno.writeTextFile(`${test.statePath}/go`, "\n");
  }
  assertEquals(stderr, "err\nready\nlate\n");
  assertEquals(table.get(processId).exitCode, 4);
});

Deno.test("OK on a follow means final: GetProcess already says so", async () => {
  await using test = await openTestTable();
  const { table } = test;
  for (let round = 0; round < 20; round++) {
    const { processId } = await startShell(table, "echo x");
    for await (
      const _ of table.outputs({ processId, stdoutOffset: 0, stderrOffset: 0, follow: true }, NEVER)
    );
    assertEquals(table.get(processId).status, "completed");
  }
});

Deno.test("binary bytes come out as they were written", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const { processId } = await startShell(table, "head -c 3000000 /dev/urandom | tee copy");
  const { stdout } = await readOutputs(table, processId);
  assertEquals(stdout, await Deno.readFile(`${test.statePath}/copy`));
});

Deno.test("a follower that goes away ends alone", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const { processId } = await startShell(table, "echo a; exec sleep 600");
  const client = new AbortController();
  const request = { processId, stdoutOffset: 0, stderrOffset: 0, follow: true };
  const following = (async () => {
    for await (const _ of table.outputs(request, client.signal)) client.abort();
  })();
  assertEquals((await assertRejects(() => following, AgentError)).kind, "cancelled");
  assertEquals(table.metrics().streams, 0);
  assertEquals(table.get(processId).status, "running");
  assertEquals(await readUntil(table, processId, (text) => text === "a\n"), "a\n");
});

Deno.test("clients' mistakes with ids and offsets", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const none = "0".repeat(32);
  const outputs = (processId: string, stdoutOffset = 0) => async () => {
    const request = { processId, stdoutOffset, stderrOffset: 0, follow: false };
    for await (const _ of table.outputs(request, NEVER));
  };
  const get = (processId: string) => () => Promise.try(() => table.get(processId));
  const { processId } = await startShell(table, "exit 0");
  const cases: [() => Promise<unknown>, string, string][] = [
    [get(none), "not-found", `process "${none}" not found`],
    [get(""), "invalid-argument", "process_id cannot be empty"],
    [outputs(""), "invalid-argument", "process_id cannot be empty"],
    [outputs(none), "not-found", `process "${none}" not found`],
    [outputs(processId, -1), "invalid-argument", "offsets cannot be negative"],
    [() => table.kill("", NEVER), "invalid-argument", "process_id cannot be empty"],
    [() => table.kill(none, NEVER), "not-found", `process "${none}" not found`],
  ];
  for (const [call, kind, message] of cases) {
    const error = await assertRejects(call, AgentError);
    assertEquals([error.kind, error.message], [kind, message]);
  }
});

Deno.test("shutdown: followers get the last bytes and the end, nothing new starts", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const { processId } = await startShell(
    table,
    `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done`,
  );
  const stubborn = await startShell(table, "trap '' TERM; echo ready; sleep 600 & wait; sleep 600");
  for (const id of [processId, stubborn.processId]) {
    await readUntil(table, id, (text) => text === "ready\n");
  }
  const following = readOutputs(table, processId);
  const down = table.shutdown(2_000);
  const refused = await assertRejects(() => startShell(table, "exit 0"), AgentError);
  assertEquals(refused.kind, "unavailable");
  await down;
  assertEquals(new TextDecoder().decode((await following).stdout), "ready\nbye\n");
  assertEquals(table.get(processId).exitCode, 5);
  assertEquals(table.get(stubborn.processId).exitCode, 137);
});
