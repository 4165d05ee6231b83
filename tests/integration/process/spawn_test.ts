// What a start does with programs, directories, variables and limits of the kernel.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import type { StartRequest } from "../../../src/process/process_table.ts";
import { createTempDir } from "../../helpers/state_dir.ts";
import {
  NEVER,
  openTestTable,
  readOutputs,
  type TestTable,
  waitFinal,
} from "../../helpers/process_table.ts";

function assertIncludes(text: string, part: string): void {
  assert(text.includes(part), `${JSON.stringify(text)} does not include ${JSON.stringify(part)}`);
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

/** Starts, waits, and gives all there is to know. */
async function run({ table }: TestTable, request: Partial<StartRequest>) {
  const start = await table.start({ command: ["true"], cwd: "", env: {}, ...request }, NEVER);
  const { stdout, stderr } = await readOutputs(table, start.processId);
  const info = table.get(start.processId);
  return { ...info, stdout: decode(stdout), stderr: decode(stderr) };
}

async function refusal({ table }: TestTable, request: Partial<StartRequest>): Promise<AgentError> {
  const start = table.start({ command: ["true"], cwd: "", env: {}, ...request }, NEVER);
  return await assertRejects(() => start, AgentError);
}

/** A directory with programs that can and cannot be run. */
async function createPrograms() {
  const directory = await createTempDir();
  const write = async (name: string, text: string, mode: number) => {
    await Deno.writeTextFile(`${directory.path}/${name}`, text);
    await Deno.chmod(`${directory.path}/${name}`, mode);
  };
  await write("plain", "echo plain $1\n", 0o755);
  await write("script", "#!/bin/sh\necho script $1\n", 0o755);
  await write("orphan", "#!/nonexistent/interpreter\n", 0o755);
  await write("unexecutable", "#!/bin/sh\n", 0o644);
  await Deno.mkdir(`${directory.path}/sub`);
  return directory;
}

Deno.test("argv is run exactly, text without #! by /bin/sh, stdin is empty", async () => {
  await using test = await openTestTable();
  await using programs = await createPrograms();
  const { path } = programs;
  const printed = await run(test, { command: ["printf", "[%s]", "a b", "", "$HOME", "*", "é"] });
  assertEquals(printed.stdout, "[a b][][$HOME][*][é]");
  assertEquals((await run(test, { command: [`${path}/plain`, "x y"] })).stdout, "plain x y\n");
  assertEquals((await run(test, { command: [`${path}/script`, "x"] })).stdout, "script x\n");
  assertEquals((await run(test, { command: ["cat"] })).exitCode, 0);
});

Deno.test("programs are found by the child's PATH, or relative to its cwd", async () => {
  await using test = await openTestTable();
  await using programs = await createPrograms();
  const { path } = programs;
  const env = { PATH: `/nonexistent:${path}:/usr/bin:/bin` };
  assertEquals((await run(test, { command: ["plain", "p"], env })).stdout, "plain p\n");
  assertEquals((await run(test, { command: ["./plain", "r"], cwd: path })).stdout, "plain r\n");
  const above = await run(test, { command: ["../plain", "r"], cwd: `${path}/sub` });
  assertEquals(above.stdout, "plain r\n");
});

Deno.test("cwd: the workspace, below it, or anywhere", async () => {
  await using test = await openTestTable();
  await Deno.mkdir(`${test.statePath}/below`);
  const pwd = async (cwd: string) => (await run(test, { command: ["pwd", "-P"], cwd })).stdout;
  assertEquals(await pwd(""), `${test.statePath}\n`);
  assertEquals(await pwd("below"), `${test.statePath}/below\n`);
  assertEquals(await pwd("below/.."), `${test.statePath}\n`);
  assertEquals(await pwd("/"), "/\n");
});

Deno.test("a program that cannot be run: the call succeeds, the process is FAILED", async () => {
  await using test = await openTestTable();
  await using programs = await createPrograms();
  const { path } = programs;
  const env = { PATH: `${path}:/usr/bin:/bin` };
  const cases: [Partial<StartRequest>, number, string][] = [
    [{ command: ["no-such-program"] }, 127, `"no-such-program"`],
    [{ command: ["/no/such/program"] }, 127, `"/no/such/program"`],
    [{ command: ["./no-such"], cwd: path }, 127, `"./no-such"`],
    [{ command: ["sh"], env: { PATH: "" } }, 127, `"sh"`],
    [{ command: [`${path}/orphan`] }, 126, "interpreter"],
    [{ command: ["./orphan"], cwd: path }, 126, "interpreter"],
    [{ command: ["orphan"], env }, 126, "interpreter"],
    [{ command: [`${path}/unexecutable`] }, 126, "EACCES"],
    [{ command: ["unexecutable"], env }, 126, "EACCES"],
    [{ command: [`${path}/sub`] }, 126, "EACCES"],
    [{ command: [`${path}/plain/x`] }, 126, "ENOTDIR"],
    [{ command: ["/" + "x".repeat(300)] }, 126, "ENAMETOOLONG"],
  ];
  for (const [request, code, text] of cases) {
    const { status, exitCode, finishedAt, stderr } = await run(test, request);
    assertEquals([status, exitCode], ["failed", code], JSON.stringify(request));
    assert(finishedAt !== undefined);
    assertIncludes(stderr, text);
    assertEquals(stderr.split("\n").length, 2, "one line");
  }
  assertEquals(test.table.metrics().running, 0);
});

Deno.test("a cwd that is missing or no directory is named, the program is not blamed", async () => {
  await using test = await openTestTable();
  const cases: [string, string, string?][] = [
    ["/no/such/cwd", "does not exist"],
    ["no-such", "does not exist"],
    ["/dev/null", "is not a directory"],
    ["/dev/null/x", "cwd"],
    ["/no/such/cwd", "does not exist", "no-such-program"],
    ["/no/such/cwd", "does not exist", "./no-such-program"],
    ["/no/such/cwd", "does not exist", "/no/such/program"],
    ["/dev/null", "is not a directory", "/dev/null"],
    ["/" + "x".repeat(300), "cwd"],
  ];
  for (const [cwd, text, program = "true"] of cases) {
    const error = await refusal(test, { cwd, command: [program] });
    assertEquals(error.kind, "invalid-argument", cwd);
    assertIncludes(error.message, text);
    assertIncludes(error.message, cwd);
  }
  await assertNothingLeft(test);
});

Deno.test("argv and env too large for the kernel: INVALID_ARGUMENT, nothing left", async () => {
  await using test = await openTestTable();
  const large = "x".repeat(3_000_000);
  assertEquals((await refusal(test, { command: ["echo", large] })).kind, "invalid-argument");
  assertEquals((await refusal(test, { env: { A: large } })).kind, "invalid-argument");
  await assertNothingLeft(test);
});

async function assertNothingLeft({ table, statePath }: TestTable): Promise<void> {
  assertEquals([...Deno.readDirSync(`${statePath}/processes`)], []);
  const { running, finished, spoolBytes } = table.metrics();
  assertEquals([running, finished, spoolBytes], [0, 0, 0]);
  assertEquals(
    (await assertRejects(() => table.kill("f".repeat(32), NEVER), AgentError)).kind,
    "not-found",
  );
}

Deno.test("the environment: the agent's, overlaid by the request's, and the marker", async () => {
  await using test = await openTestTable();
  const env = { GREETING: "hi there", EMPTY: "" };
  const { processId, stdout } = await run(test, { command: ["env"], env });
  const lines = stdout.split("\n");
  for (const line of [`ATEENV_PROCESS_ID=${processId}`, "GREETING=hi there", "EMPTY="]) {
    assert(lines.includes(line), line);
  }
  assert(lines.some((line) => line.startsWith("PATH=")));
});

Deno.test("a child has its own session and process group", async () => {
  await using test = await openTestTable();
  const { stdout } = await run(test, {
    command: [
      "sh",
      "-c",
      "read -r pid comm state parent group session rest </proc/$$/stat; echo $pid $group $session",
    ],
  });
  const [pid, group, session] = stdout.trim().split(" ");
  assertEquals([group, session], [pid, pid]);
});

Deno.test("children rather than the agent go when memory runs out", async () => {
  await using test = await openTestTable();
  // The helper raises the score, a moment after the start; a score of their own choice stays.
  const score = (own: string) =>
    run(test, {
      command: [
        "sh",
        "-c",
        `${own}; until [ "$(cat /proc/$$/oom_score_adj)" -ge 500 ]; do sleep 0.01; done; sleep 0.1
         cat /proc/$$/oom_score_adj`,
      ],
    });
  assertEquals((await score(":")).stdout, "500\n");
  assertEquals((await score("echo 900 >/proc/$$/oom_score_adj")).stdout, "900\n");
});

Deno.test("a file that is busy for a moment is run when it is free", async () => {
  await using test = await openTestTable();
  await using programs = await createPrograms();
  const path = `${programs.path}/script`;
  const file = await Deno.open(path, { append: true });
  const started = run(test, { command: [path, "late"] });
  await new Promise((resolve) => setTimeout(resolve, 5));
  file.close();
  assertEquals((await started).stdout, "script late\n");
});

Deno.test("a file that stays busy is FAILED 126", async () => {
  await using test = await openTestTable();
  await using programs = await createPrograms();
  const path = `${programs.path}/script`;
  using _file = await Deno.open(path, { append: true });
  const { exitCode, stderr } = await run(test, { command: [path] });
  assertEquals(exitCode, 126);
  assertIncludes(stderr, "ETXTBSY");
});

Deno.test("the limit of processes: a slot is held until the process is final, and given back", async () => {
  await using test = await openTestTable({ maxProcesses: 2 });
  const { table } = test;
  const sleep = { command: ["sleep", "600"] };
  const [a, b, c] = await Promise.allSettled(
    Array.from({ length: 3 }, () => table.start({ ...sleep, cwd: "", env: {} }, NEVER)),
  );
  assertEquals([a!.status, b!.status, c!.status], ["fulfilled", "fulfilled", "rejected"]);
  const error = await refusal(test, sleep);
  assertEquals(error.kind, "resource-exhausted");
  assertEquals(error.message, "maximum concurrent processes limit (2) reached");
  if (a!.status === "fulfilled") await table.kill(a!.value.processId, NEVER);
  assertEquals((await run(test, {})).exitCode, 0);
  // Neither of these takes a slot for good.
  assertEquals((await run(test, { command: ["no-such-program"] })).exitCode, 127);
  await refusal(test, { cwd: "/no/such" });
  assertEquals((await run(test, {})).exitCode, 0);
});

Deno.test("the process timeout kills the tree: TERMINATED 137, and the log says why", async () => {
  await using test = await openTestTable({ processTimeoutMs: 200 });
  const { table, lines } = test;
  const { processId } = await table.start(
    { command: ["sh", "-c", "setsid sleep 600 & sleep 600"], cwd: "", env: {} },
    NEVER,
  );
  const { status, exitCode } = await waitFinal(table, processId);
  assertEquals([status, exitCode], ["terminated", 137]);
  assert(lines.some(({ level, message }) => level === "warn" && message.includes("timeout")));
  assertEquals((await run(test, {})).exitCode, 0);
});

Deno.test("a start whose client has gone leaves nothing", async () => {
  await using test = await openTestTable();
  const { table } = test;
  const client = new AbortController();
  const start = table.start({ command: ["sleep", "600"], cwd: "", env: {} }, client.signal);
  client.abort();
  assertEquals((await assertRejects(() => start, AgentError)).kind, "cancelled");
  const { processId } = await table.start({ command: ["sleep", "600"], cwd: "", env: {} }, NEVER);
  await table.discard(processId);
  assertEquals(
    (await assertRejects(() => table.kill(processId, NEVER), AgentError)).kind,
    "not-found",
  );
  await table.shutdown(0);
  await assertNothingLeft(test);
});

Deno.test("log lines of a process hold its id, never its arguments or variables", async () => {
  await using test = await openTestTable();
  const { processId } = await run(test, {
    command: ["sh", "-c", "echo secret-output; exit 3", "secret-argument"],
    env: { SECRET_NAME: "secret-value" },
  });
  const text = JSON.stringify(test.lines);
  assertIncludes(text, processId);
  assert(!text.toLowerCase().includes("secret"));
  const finished = test.lines.find(({ message }) => message === "process finished");
  assertEquals(finished?.fields["code"], 3);
  assertEquals(finished?.fields["stdoutBytes"], 14);
});

Deno.test("a death by a signal without a name is reported with its number", async () => {
  // In a process of its own: the runtime never closes its record of such a child.
  const helpers = import.meta.resolve("../../helpers/process_table.ts");
  const code = `import { openTestTable, startShell, waitFinal } from ${JSON.stringify(helpers)};
    await using test = await openTestTable();
    const { processId } = await startShell(test.table, "kill -40 $$");
    const { status, exitCode } = await waitFinal(test.table, processId);
    console.log(status, exitCode);`;
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["eval", code] }).output();
  assertEquals(decode(stdout), "terminated 168\n");
});
