// `ateenv run` and its kin as a person uses them: real agent, real processes, pipes and a terminal.
import { assert, assertEquals } from "@std/assert";
import { SAME_ASK_MS } from "../../src/cli/asks.ts";
import { type AgentProcess, startAgentProcess } from "../helpers/agent_process.ts";
import { hasTerminal, openTerminal, runCli, spawnCli } from "../helpers/cli_process.ts";
import { startFakeAgent } from "../helpers/fake_agent.ts";
import { startFaultProxy } from "../helpers/fault_proxy.ts";

const REPOSITORY = new URL("../../", import.meta.url).pathname;
const TERMINAL = await hasTerminal();
if (!TERMINAL) console.warn("SKIPPED: tests on a terminal, since there is no script(1)");

/** Whether a process of the sandbox lives. A zombie does not, whoever is to reap it. */
async function isAlive(pid: string): Promise<boolean> {
  const { stdout } = await new Deno.Command("cat", {
    args: [`/proc/${pid}/stat`],
    stderr: "null",
  }).output();
  const state = /\) (\w) /.exec(new TextDecoder().decode(stdout))?.[1];
  return state !== undefined && state !== "Z";
}

/** Runs `command` with `sh -c` through the CLI. */
async function shell(agent: AgentProcess, command: string, flags: readonly string[] = []) {
  return await runCli(["run", ...flags, "--", "sh", "-c", command], { address: agent.address });
}

Deno.test("run: output byte for byte, streams apart, exit code as it was", async () => {
  await using agent = await startAgentProcess();
  const bytes = new Uint8Array(300_000);
  crypto.getRandomValues(bytes.subarray(0, 65_536));
  bytes.copyWithin(65_536, 0, 234_464);
  await Deno.writeFile(`${agent.workspace}/blob`, bytes);
  const result = await shell(agent, "cat blob; printf 'no newline' >&2; exit 3");
  assertEquals(result.code, 3);
  assertEquals(result.stdoutBytes, bytes);
  assertEquals(result.stderr, "no newline");
});

Deno.test("run: a timeout prints what arrived, kills the tree, and exits 124", async () => {
  await using agent = await startAgentProcess();
  const result = await shell(agent, "echo $$; echo begun >&2; sleep 1000 & sleep 1000; wait", [
    "--timeout",
    "300ms",
  ]);
  assertEquals(result.code, 124);
  assert(/^begun\nateenv: .*timed out.*--timeout/.test(result.stderr), result.stderr);
  assertEquals(await isAlive(result.stdout.trim()), false);
});

Deno.test("run: does not wait for a local stdin that stays open", async () => {
  await using agent = await startAgentProcess();
  const child = spawnCli(["run", "--", "sh", "-c", "cat; echo done"], {
    address: agent.address,
  });
  const stdout = await new Response(child.stdout).text();
  assertEquals(stdout, "done\n");
  assertEquals((await child.status).code, 0);
  await child.stdin.close();
  await child.stderr.cancel();
});

Deno.test("run: a reader that goes away (| head -1) makes no noise and ends the command", async () => {
  await using agent = await startAgentProcess();
  const child = spawnCli(["run", "--", "sh", "-c", "echo $$; exec yes"], {
    address: agent.address,
  });
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const pid = (await reader.read()).value!.split("\n")[0]!;
  await reader.cancel();
  assertEquals(await new Response(child.stderr).text(), "");
  assertEquals((await child.status).code, 141);
  assertEquals(await isAlive(pid), false);
  await child.stdin.close();
});

Deno.test("run: SIGTERM kills the remote tree and exits 143", async () => {
  await using agent = await startAgentProcess();
  const child = spawnCli(["run", "--", "sh", "-c", "echo $$; exec sleep 1000"], {
    address: agent.address,
  });
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const pid = (await reader.read()).value!.trim();
  child.kill("SIGTERM");
  assertEquals((await child.status).code, 143);
  assertEquals(await isAlive(pid), false);
  await reader.cancel();
  assertEquals(await new Response(child.stderr).text(), "");
  await child.stdin.close();
});

Deno.test({
  name: "run: Ctrl-C while it runs kills the remote tree and exits 130",
  ignore: !TERMINAL,
  async fn() {
    await using agent = await startAgentProcess();
    const terminal = openTerminal(
      "ateenv run -- sh -c 'setsid sleep 1000 & echo pid $!.; wait'",
      { address: agent.address },
    );
    await terminal.waitText(/pid \d+\./);
    const pid = /pid (\d+)\./.exec(terminal.screen)![1]!;
    assertEquals(await isAlive(pid), true);
    await terminal.type("\x03");
    assertEquals(await terminal.ended, 130);
    assertEquals(await isAlive(pid), false);
    assert(/\^C\r?\nateenv: killing it.*Ctrl-C again/.test(terminal.screen), terminal.screen);
  },
});

Deno.test("run: a SIGINT that comes twice at once, as npm and deno task send it, still kills", async () => {
  await using agent = await startAgentProcess();
  const child = spawnCli(["run", "--", "sh", "-c", "echo $$; exec sleep 1000"], {
    address: agent.address,
  });
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const pid = (await reader.read()).value!.trim();
  for (let count = 0; count < 3; count++) child.kill("SIGINT");
  assertEquals((await child.status).code, 130);
  assertEquals(await isAlive(pid), false);
  await reader.cancel();
  assertEquals(await new Response(child.stderr).text(), "");
  await child.stdin.close();
});

Deno.test({
  name: "run: Ctrl-C through `deno task ateenv` kills the remote tree and exits 130",
  ignore: !TERMINAL,
  async fn() {
    await using agent = await startAgentProcess();
    const terminal = openTerminal(
      `'${Deno.execPath()}' task -q ateenv run -- sh -c 'echo pid $$.; exec sleep 1000'`,
      { address: agent.address, cwd: REPOSITORY },
    );
    await terminal.waitText(/pid \d+\./);
    const pid = /pid (\d+)\./.exec(terminal.screen)![1]!;
    await terminal.type("\x03");
    assertEquals(await terminal.ended, 130);
    assertEquals(await isAlive(pid), false);
  },
});

Deno.test({
  name: "run: Ctrl-C while nobody answers exits 130 at once",
  ignore: !TERMINAL,
  async fn() {
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const terminal = openTerminal("ateenv run -- true", {
      address: `127.0.0.1:${listener.addr.port}`,
    });
    using _connection = await listener.accept();
    await terminal.type("\x03");
    assertEquals(await terminal.ended, 130);
  },
});

Deno.test({
  name: "logs -f: Ctrl-C leaves the process as it is",
  ignore: !TERMINAL,
  async fn() {
    await using agent = await startAgentProcess();
    const { address } = agent;
    const id = (await runCli(["start", "--", "sh", "-c", "echo up; exec sleep 1000"], { address }))
      .stdout.trim();
    const terminal = openTerminal(`ateenv logs -f ${id}`, { address });
    await terminal.waitText("up");
    await terminal.type("\x03");
    assertEquals(await terminal.ended, 130);
    const status = await runCli(["status", "--json", id], { address });
    assertEquals(JSON.parse(status.stdout).status, "running");
    assertEquals((await runCli(["kill", id], { address })).code, 0);
  },
});

Deno.test("run: exact, and once, through a proxy that cuts every connection again and again", async () => {
  await using agent = await startAgentProcess();
  await using proxy = startFaultProxy(agent.address);
  const command = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; echo err $i >&2; " +
    "sleep 0.02; done; exit 5";
  const child = spawnCli(["run", "--", "sh", "-c", command], { address: proxy.address });
  const stderr = new Response(child.stderr).text();
  let stdout = "";
  for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
    // Only once the command runs: a start whose answer is lost is not made again.
    if (stdout === "") {
      proxy.options = { cutAfterMs: 150 };
      proxy.cut();
    }
    stdout += text;
  }
  const lines = (word: string) =>
    Array.from({ length: 40 }, (_, index) => `${word} ${index + 1}\n`).join("");
  // How long a cut lasts is up to the machine.
  const ours = /^ateenv: connection lost; .*\n/gm;
  assertEquals([stdout, (await stderr).replace(ours, "")], [lines("line"), lines("err")]);
  assertEquals((await child.status).code, 5);
  assert(proxy.cuts >= 2, `${proxy.cuts} cuts`);
  await child.stdin.close();
});

Deno.test("run: an agent that dies is waited for; what it had written is printed once", async () => {
  await using state = await tempDir();
  await using workspace = await tempDir();
  const options = { stateDir: state.path, workspace: workspace.path };
  const first = await startAgentProcess(options);
  await using proxy = startFaultProxy(first.address);
  const child = spawnCli(["run", "--", "sh", "-c", "echo before; exec sleep 1000"], {
    address: proxy.address,
  });
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  assertEquals((await reader.read()).value, "before\n");
  proxy.refuse = true;
  await first.crash();
  proxy.cut();
  await using second = await startAgentProcess(options);
  proxy.target = second.address;
  proxy.refuse = false;
  assertEquals((await reader.read()).done, true);
  assertEquals((await child.status).code, 137);
  assertEquals(
    await new Response(child.stderr).text(),
    "ateenv: connection lost; trying for 60 s\n",
  );
  await child.stdin.close();
});

Deno.test("token, and TLS with the wrong authority", async (t) => {
  await using dir = await tempDir();
  const fixtures = new URL("../fixtures/tls/", import.meta.url).pathname;
  await Deno.writeTextFile(`${dir.path}/token`, "the-right-token\n");
  await Deno.writeTextFile(`${dir.path}/wrong`, "the-wrong-token\n");
  await Deno.chmod(`${dir.path}/token`, 0o600);
  await using agent = await startAgentProcess({
    flags: [
      "--token-file",
      `${dir.path}/token`,
      "--tls-cert",
      `${fixtures}server.pem`,
      "--tls-key",
      `${fixtures}server.key`,
    ],
  });
  const address = `https://${agent.address}`;
  const run = (...flags: string[]) => runCli(["run", ...flags, "--", "echo", "in"], { address });
  const ca = `${fixtures}server-ca.pem`;
  await t.step("right", async () => {
    const result = await run("--tls-ca", ca, "--token-file", `${dir.path}/token`);
    assertEquals([result.code, result.stdout, result.stderr], [0, "in\n", ""]);
  });
  await t.step("wrong token", async () => {
    const result = await run("--tls-ca", ca, "--token-file", `${dir.path}/wrong`);
    assertEquals(result.code, 125);
    assert(/^ateenv: .*--token-file.*\n$/.test(result.stderr), result.stderr);
    assert(!result.stderr.includes("wrong-token"));
  });
  await t.step("no token", async () => {
    assert((await run("--tls-ca", ca)).stderr.includes("--token-file"));
  });
  await t.step("wrong authority", async () => {
    const result = await run(
      "--tls-ca",
      `${fixtures}client-ca.pem`,
      "--token-file",
      `${dir.path}/token`,
    );
    assertEquals(result.code, 125);
    assert(/^ateenv: .*certificate.*--tls-ca.*\n$/.test(result.stderr), result.stderr);
  });
  // Deno's node:https wanted a permission that there is no flag for.
  await t.step("no authority, health and doctor too", async () => {
    assert(/certificate/.test((await run()).stderr));
    for (const command of ["health", "doctor"]) {
      const { code, stdout } = await runCli([command], { address });
      assert(
        code === 1 && /certificate/.test(stdout) && !/permission|--allow/.test(stdout),
        stdout,
      );
    }
  });
  await t.step("doctor", async () => {
    const flags = ["--tls-ca", ca, "--json"];
    const wrong = await runCli(["doctor", ...flags, "--token-file", `${dir.path}/wrong`], {
      address,
    });
    assertEquals(wrong.code, 1);
    const { ok, checks } = JSON.parse(wrong.stdout);
    assertEquals(ok, false);
    const failed = checks.filter((check: { verdict: string }) => check.verdict === "fail");
    assert(failed.length === 1 && failed[0].detail.includes("--token-file"), wrong.stdout);
    const right = await runCli(["doctor", ...flags, "--token-file", `${dir.path}/token`], {
      address,
    });
    assertEquals([right.code, JSON.parse(right.stdout).ok], [0, true]);
  });
  await t.step("health needs no token", async () => {
    assertEquals((await runCli(["health", "--tls-ca", ca], { address })).code, 0);
  });
});

Deno.test("the exit code is the process's, for commands and for own failures", async () => {
  await using agent = await startAgentProcess();
  const { address } = agent;
  assertEquals((await runCli(["run", "--", "sh", "-c", "exit 42"], { address })).code, 42);
  assertEquals((await runCli(["--version"])).stdout, `${agent.startLine.version}\n`);
  const free = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const nobody = `127.0.0.1:${free.addr.port}`;
  free.close();
  const startMs = performance.now();
  const failed = await runCli(["run", "true"], { address: nobody });
  assert(performance.now() - startMs < 5_000, "with the start of Deno");
  assertEquals(failed.code, 125);
  assert(failed.stderr.includes(nobody) && failed.stderr.trimEnd().split("\n").length === 1);
});

Deno.test("run: a timeout is kept though our own output is blocked", async () => {
  await using agent = await startAgentProcess();
  const child = spawnCli(["run", "--timeout", "300ms", "--", "yes"], {
    address: agent.address,
  });
  assertEquals((await child.status).code, 124);
  await child.stdout.cancel();
  await child.stderr.cancel();
  await child.stdin.close();
});

Deno.test({
  name: "run: Ctrl-C while the start is under way kills what was started",
  ignore: !TERMINAL,
  async fn() {
    await using agent = await startFakeAgent();
    const reached = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    agent.gate = async (method) => {
      if (method !== "startProcess") return;
      reached.resolve();
      await release.promise;
    };
    const terminal = openTerminal("ateenv run -- sleep 1000", { address: agent.address });
    await reached.promise;
    await terminal.type("\x03");
    // Shown by the terminal when it has passed the signal on.
    await terminal.waitText("^C");
    release.resolve();
    assertEquals(await terminal.ended, 130);
    assertEquals(agent.calls.get("killProcess"), 1);
  },
});

Deno.test({
  name: "run: a second Ctrl-C does not wait for the kill, and says what it leaves behind",
  ignore: !TERMINAL,
  async fn() {
    await using agent = await startFakeAgent();
    const killing = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    agent.gate = async (method) => {
      if (method === "killProcess") {
        killing.resolve();
        await release.promise;
      } else if (method === "streamProcessOutputs") await release.promise;
    };
    const terminal = openTerminal("echo ready; ateenv run -- sleep 1000", {
      address: agent.address,
    });
    await agent.waitCall("streamProcessOutputs");
    await terminal.type("\x03");
    await killing.promise;
    // What comes together counts once: here time itself is what is waited for.
    await new Promise((resolve) => setTimeout(resolve, SAME_ASK_MS));
    await terminal.type("\x03");
    assertEquals(await terminal.ended, 130);
    assert(/may still run: ateenv kill fake-1\r?\n$/.test(terminal.screen), terminal.screen);
    release.resolve();
  },
});

Deno.test("a unix socket", async () => {
  await using dir = await tempDir();
  const socket = `${dir.path}/agent.sock`;
  await using _agent = await startAgentProcess({ flags: ["--unix", socket] });
  const address = `unix:${socket}`;
  assertEquals((await runCli(["run", "echo", "in"], { address })).stdout, "in\n");
  assertEquals((await runCli(["health"], { address })).code, 0);
});

Deno.test({
  name: "colours only on a terminal, and not with NO_COLOR",
  ignore: !TERMINAL,
  async fn() {
    await using agent = await startAgentProcess();
    const { address } = agent;
    const colored = openTerminal("ateenv doctor", { address, env: { NO_COLOR: "" } });
    assertEquals(await colored.ended, 0, colored.screen);
    const muted = openTerminal("ateenv doctor", { address, env: { NO_COLOR: "1" } });
    assertEquals(await muted.ended, 0, muted.screen);
    assert(colored.screen.includes("\x1b[32mok"), colored.screen);
    // Deno itself may clear the line.
    assert(!muted.screen.includes("\x1b[3"), muted.screen);
  },
});

async function tempDir() {
  const path = await Deno.realPath(await Deno.makeTempDir({ prefix: "ateenv-cli-" }));
  return { path, [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }) };
}
