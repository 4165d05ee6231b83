// The commands of the CLI, run in this process against the real agent: what they print and exit with.
import { assert, assertEquals } from "@std/assert";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { runInProcess as runCli } from "../helpers/cli_app.ts";
import { startFakeAgent } from "../helpers/fake_agent.ts";

Deno.test("run: every exit code", async (t) => {
  await using agent = await startAgentProcess();
  const { address } = agent;
  const table: [string, string[], number, RegExp][] = [
    ["success", ["run", "true"], 0, /^$/],
    ["failure", ["run", "sh", "-c", "exit 42"], 42, /^$/],
    ["125 of the command itself", ["run", "sh", "-c", "exit 125"], 125, /^$/],
    ["killed", ["run", "sh", "-c", "kill -9 $$"], 137, /^$/],
    ["not found", ["run", "nosuch-program"], 127, /nosuch-program/],
    ["not executable", ["run", "/etc/passwd"], 126, /\/etc\/passwd/],
    ["no such directory", ["run", "--cwd", "nowhere", "true"], 125, /^ateenv: .*nowhere.*\n$/],
    ["no command", ["run"], 125, /^ateenv: .*command.*--help.*\n$/],
    ["bad duration", ["run", "--timeout", "3", "true"], 125, /^ateenv: .*500ms.*\n$/],
    ["bad variable", ["run", "--env", "X", "true"], 125, /^ateenv: .*NAME=value.*\n$/],
    ["unknown command", ["rum"], 125, /^ateenv: .*run.*\n$/],
    ["unknown process", ["status", "nope"], 125, /^ateenv: .*nope.*\n$/],
    ["bad address", ["--address", "ftp://x", "run", "true"], 125, /^ateenv: .*ftp.*\n$/],
  ];
  for (const [name, args, code, stderr] of table) {
    await t.step(name, async () => {
      const result = await runCli(args, { address });
      assertEquals([result.code, result.stdout], [code, ""]);
      assert(stderr.test(result.stderr), result.stderr);
    });
  }
});

Deno.test("run: cwd, variables, and options of the command after its name", async () => {
  await using agent = await startAgentProcess();
  await Deno.mkdir(`${agent.workspace}/sub`);
  const result = await runCli(
    ["run", "--cwd", "sub", "--env", "A=1", "--env", "B=x=y", "sh", "-c", 'pwd; echo "$A $B"'],
    { address: agent.address },
  );
  assertEquals(result.stdout, `${agent.workspace}/sub\n1 x=y\n`);
  const dashed = await runCli(["run", "echo", "--timeout", "-n", "--json"], {
    address: agent.address,
  });
  assertEquals(dashed.stdout, "--timeout -n --json\n");
});

Deno.test("start, status, logs, wait, kill", async () => {
  await using agent = await startAgentProcess();
  const { address } = agent;
  const start = async (command: string) =>
    (await runCli(["start", "--", "sh", "-c", command], { address })).stdout.trim();
  const id = await start("printf abcdef; printf 123456 >&2; exit 4");
  const waited = await runCli(["wait", id], { address });
  assertEquals([waited.code, waited.stdout], [4, "failed, exit code 4\n"]);
  const logs = await runCli(["logs", id], { address });
  assertEquals([logs.stdout, logs.stderr], ["abcdef", "123456"]);
  const from = await runCli(["logs", "-f", "--since-offset", "2,4", id], { address });
  assertEquals([from.stdout, from.stderr], ["cdef", "56"]);
  const only = await runCli(["logs", "--only", "stderr", id], { address });
  assertEquals([only.stdout, only.stderr], ["", "123456"]);
  const json = await runCli(["logs", "--json", "--since-offset", "3", id], { address });
  const lines = json.stdout.trim().split("\n").map((line) => JSON.parse(line));
  assertEquals(lines.find(({ source }) => source === "stdout"), {
    source: "stdout",
    offset: 3,
    base64: btoa("def"),
  });
  const state = JSON.parse((await runCli(["status", "--json", id], { address })).stdout);
  assertEquals([state.processId, state.status, state.exitCode], [id, "failed", 4]);

  const running = await start("exec sleep 1000");
  const killed = await runCli(["kill", "--json", running], { address });
  assertEquals(JSON.parse(killed.stdout), { processId: running, exitCode: 137 });
  assertEquals((await runCli(["wait", running], { address })).code, 137);
});

Deno.test("errors are JSON where JSON is asked for", async () => {
  await using agent = await startAgentProcess();
  for (const args of [["status", "--json", "nope"], ["--json", "status", "nope"]]) {
    const result = await runCli(args, { address: agent.address });
    const { error } = JSON.parse(result.stderr);
    assertEquals([result.code, result.stdout, error.kind], [125, "", "not-found"]);
  }
  const usage = await runCli(["run", "--json", "--timeout", "x", "true"]);
  assertEquals(JSON.parse(usage.stderr).error.kind, "usage");
});

Deno.test("an agent that cannot be reached: under two seconds, with its address", async (t) => {
  // Taken and given back: nobody listens there.
  const free = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const address = `127.0.0.1:${free.addr.port}`;
  free.close();
  for (const args of [["run", "true"], ["status", "x"], ["cat", "x"], ["doctor"], ["health"]]) {
    await t.step(args[0]!, async () => {
      const startMs = performance.now();
      const result = await runCli(args, { address });
      assert(performance.now() - startMs < 2_000 + 3_000, "start-up of Deno included");
      assert((result.stderr + result.stdout).includes(address));
      assertEquals(result.code, ["doctor", "health"].includes(args[0]!) ? 1 : 125);
    });
  }
  await t.step("a unix socket that is not there", async () => {
    const result = await runCli(["--address", "unix:/nowhere/socket", "run", "true"]);
    assertEquals(result.code, 125);
    assert(result.stderr.includes("unix:/nowhere/socket"), result.stderr);
  });
});

Deno.test("help has examples, and every command explains itself", async (t) => {
  const help = await runCli(["--help"]);
  assertEquals([help.code, help.stderr], [0, ""]);
  assert(help.stdout.includes("Examples:") && help.stdout.includes("ateenv run --"));
  const commands = [...help.stdout.matchAll(/^ {2}([a-z]+) /gm)].map((match) => match[1]!);
  for (const command of commands.filter((name) => name !== "ateenv" && name !== "help")) {
    await t.step(command, async () => {
      const result = await runCli([command, "--help"]);
      assertEquals([result.code, result.stderr], [0, ""]);
      assert(/Examples?:\n {2}.*ateenv/.test(result.stdout), result.stdout);
    });
  }
});

Deno.test("doctor: another version is a warning that says what to do", async () => {
  await using agent = await startFakeAgent();
  agent.version = "9.1.0";
  const result = await runCli(["doctor", "--json"], { address: agent.address });
  const { checks } = JSON.parse(result.stdout);
  const version = checks.find(({ check }: { check: string }) => check === "version");
  assertEquals(version.verdict, "warn");
  assert(version.detail.includes("9.1.0") && version.detail.includes("same version"));
});

Deno.test("run: a timeout, in-process: nothing goes on afterwards", async () => {
  await using agent = await startAgentProcess();
  const result = await runCli(
    ["run", "--timeout", "200ms", "--", "sh", "-c", "echo begun; exec sleep 1000"],
    { address: agent.address },
  );
  assertEquals([result.code, result.stdout], [124, "begun\n"]);
});
