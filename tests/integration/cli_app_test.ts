// The commands of the CLI, run in this process against the real agent: what they print and exit with.
import { assert, assertEquals } from "@std/assert";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { runInProcess as runCli } from "../helpers/cli_app.ts";
import { startFakeAgent } from "../helpers/fake_agent.ts";
import { startFaultProxy } from "../helpers/fault_proxy.ts";
import { createTempDir } from "../helpers/state_dir.ts";

Deno.test("run: every exit code", async (t) => {
  await using agent = await startAgentProcess();
  const { address } = agent;
  const table: [string, string[], number, RegExp][] = [
    ["success", ["run", "true"], 0, /^$/],
    ["failure", ["run", "sh", "-c", "exit 42"], 42, /^$/],
    ["125 of the command itself", ["run", "sh", "-c", "exit 125"], 125, /^$/],
    ["killed", ["run", "sh", "-c", "kill -9 $$"], 137, /^$/],
    ["not found", ["run", "nosuch-program"], 127, /nosuch-program/],
    ["a line as a word", ["run", "echo hi"], 127, /\nateenv: .*one word.*sh -c/],
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
  assertEquals(JSON.parse(killed.stdout), {
    processId: running,
    exitCode: 137,
    wasRunning: true,
  });
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
      assertEquals(result.stdout.split("\n").filter((line) => line.length > 80), []);
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

Deno.test("usage errors name the help of their command, and only close names are suggested", async (t) => {
  const table: [string[], RegExp][] = [
    [["bogus"], /^ateenv: unknown command 'bogus'; see `ateenv --help`\n$/],
    [["rum"], /\(did you mean run\?\); see `ateenv --help`/],
    [["exec", "true"], /unknown command 'exec'; use `ateenv run`\n$/],
    [["help", "nope"], /^ateenv: unknown command 'nope'; see `ateenv --help`\n$/],
    [
      ["--token-file", "/no-such", "run", "true"],
      /^ateenv: cannot read the token file "\/no-such": it does not exist\n$/,
    ],
    [["--tls-ca", "/no-such", "run", "true"], /read the CA file "\/no-such": it does not exist\n$/],
    [["--tls-ca", "/", "run", "true"], /read the CA file "\/": Is a directory\n$/],
    [["ps"], /lists no processes/],
    [["status"], /missing required argument 'id'; see `ateenv status --help`/],
    [["status", "--jsn", "x"], /did you mean --json\?\); see `ateenv status --help`/],
    [["run", "--timeout", "3", "true"], /500ms.*; see `ateenv run --help`/],
    [["run", "-it", "--", "bash"], /stdin and a terminal are not passed on; put a file first/],
    [["run", "-t", "--", "bash"], /not passed on/],
    [["cp", "--keep-links", "--skip-links", ":a", "b"], /cannot be used with.*`ateenv cp --help`/],
    [["put", "no-such-file", ":x"], /^ateenv: "no-such-file" does not exist\n$/],
    [["put", "/", ":x"], /is a directory; copy it with `ateenv cp`/],
  ];
  for (const [args, stderr] of table) {
    await t.step(args.join(" "), async () => {
      // Nobody listens there: these are told before anything is asked.
      const result = await runCli(args, { address: "127.0.0.1:9" });
      assertEquals([result.code, result.stdout], [125, ""]);
      assert(stderr.test(result.stderr), result.stderr);
    });
  }
});

Deno.test("short options, and a kill of what has finished says so", async () => {
  await using agent = await startAgentProcess();
  const { address } = agent;
  const run = await runCli(["run", "-w", "..", "-e", "A=1", "--", "sh", "-c", 'echo "$A"; pwd'], {
    address,
  });
  assertEquals(run.stdout, `1\n${agent.workspace.replace(/\/[^/]+$/, "")}\n`);
  const start = async (...argv: string[]) =>
    (await runCli(["start", "--", ...argv], { address })).stdout.trim();
  const finished = await start("sh", "-c", "exit 3");
  assertEquals((await runCli(["wait", finished], { address })).code, 3);
  const late = await runCli(["kill", finished], { address });
  assertEquals([late.code, late.stdout], [0, "had already finished, exit code 3\n"]);
  const running = await start("sleep", "1000");
  const killed = await runCli(["kill", running], { address });
  assertEquals([killed.code, killed.stdout], [0, "killed\n"]);
});

Deno.test("errors say what to do about their cause", async (t) => {
  const fixtures = new URL("../fixtures/tls/", import.meta.url).pathname;
  const tls = ["--tls-cert", `${fixtures}server.pem`, "--tls-key", `${fixtures}server.key`];
  await using off = await startAgentProcess({
    flags: ["--enable-process=false", "--enable-filesystem=false"],
  });
  await using plain = await startAgentProcess();
  await using secure = await startAgentProcess({ flags: tls });
  const table: [string, string, string[], RegExp][] = [
    ["a process that is gone", plain.address, ["status", "x"], /forgotten.*--retain-for/],
    ["no processes", off.address, ["run", "true"], /switched off.*--enable-process=false/],
    ["no files", off.address, ["cat", "x"], /switched off.*--enable-filesystem=false/],
    ["TLS to none", `https://${plain.address}`, ["run", "true"], /no TLS there: use http:\/\//],
    ["none to TLS", secure.address, ["run", "true"], /if it wants TLS, use https:\/\//],
  ];
  for (const [name, address, args, stderr] of table) {
    await t.step(name, async () => {
      const result = await runCli(args, { address });
      assertEquals([result.code, result.stdout], [125, ""]);
      assert(stderr.test(result.stderr), result.stderr);
    });
  }
});

Deno.test("doctor: what was chosen is no failure, and its file goes wherever it can", async (t) => {
  await using token = await createTempDir();
  await Deno.writeTextFile(`${token.path}/token`, "a token\n");
  const sh = (await which("sh"))!;
  const table: [string, string[], string[], Record<string, RegExp>, boolean][] = [
    ["no processes", ["--enable-process=false"], [], {
      process: /^off .*--enable-process=false/,
      files: /^ok .*\.ateenv-doctor, which stays/,
    }, true],
    ["no files", ["--enable-filesystem=false"], [], {
      process: /^ok /,
      files: /^off .*--enable-filesystem=false/,
    }, false],
    ["only some programs", [`--allow-run=${sh},${await which("cat")},${await which("grep")}`], [], {
      process: /^ok .*limited by the agent's --allow-run/,
      files: /^ok wrote and read a file$/,
    }, false],
    ["a token for nothing", [], ["--token-file", `${token.path}/token`], {
      auth: /^ok no token is needed/,
    }, false],
  ];
  for (const [name, flags, options, expected, isLeft] of table) {
    await t.step(name, async () => {
      await using agent = await startAgentProcess({ flags });
      const result = await runCli(["doctor", "--json", ...options], { address: agent.address });
      assertEquals(result.code, 0, result.stdout);
      const { checks } = JSON.parse(result.stdout);
      for (const [name, pattern] of Object.entries(expected)) {
        const { verdict, detail } = checks.find(({ check }: { check: string }) => check === name);
        assert(pattern.test(`${verdict} ${detail}`), result.stdout);
      }
      const names = (await Array.fromAsync(Deno.readDir(agent.workspace))).map(({ name }) => name);
      assertEquals(names, isLeft ? [".ateenv-doctor"] : []);
    });
  }
});

Deno.test("an outage is told at once, a cut that is bridged is not", async () => {
  await using agent = await startAgentProcess();
  await using proxy = startFaultProxy(agent.address);
  const outage = Promise.withResolvers<void>();
  let lines = "";
  const running = runCli(
    ["run", "--", "sh", "-c", "mkfifo go; echo up; read line <go; echo $line"],
    {
      address: proxy.address,
      onStdout: (text) => {
        if (text.includes("up")) {
          proxy.refuse = true;
          proxy.cut();
        }
      },
      onStderr: (text) => {
        lines += text;
        outage.resolve();
      },
    },
  );
  await outage.promise;
  proxy.refuse = false;
  await Deno.writeTextFile(`${agent.workspace}/go`, "on\n");
  const result = await running;
  assertEquals([result.code, result.stdout], [0, "up\non\n"]);
  assertEquals(lines, "ateenv: connection lost; trying for 60 s\n");
});

Deno.test("run: an agent that stops is named as what ended the command", async () => {
  await using agent = await startAgentProcess();
  const result = await runCli(["run", "--", "sh", "-c", "echo up; exec sleep 1000"], {
    address: agent.address,
    onStdout: () => agent.signal("SIGTERM"),
  });
  assertEquals([result.code, result.stdout], [143, "up\n"]);
  assertEquals(result.stderr, "ateenv: the agent is shutting down, which ends all commands\n");
});

async function which(program: string): Promise<string | undefined> {
  const { stdout } = await new Deno.Command("sh", { args: ["-c", `command -v ${program}`] })
    .output();
  return new TextDecoder().decode(stdout).trim() || undefined;
}
