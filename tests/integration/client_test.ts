// The client library against the real agent: every call, and connections that are lost on the way.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { toText } from "@std/streams";
import { AteenvError, connect } from "../../src/mod.ts";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { startFaultProxy } from "../helpers/fault_proxy.ts";
import { createTempDir } from "../helpers/state_dir.ts";

const FAST = { retry: { initialDelayMs: 5, maxDelayMs: 50, giveUpAfterMs: 30_000 } };

async function collect(output: AsyncIterable<{ source: "stdout" | "stderr"; data: Uint8Array }>) {
  const text = { stdout: "", stderr: "" };
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  for await (const { source, data } of output) {
    text[source] += decoders[source].decode(data, { stream: true });
  }
  return text;
}

Deno.test("processes: argv without a shell, cwd, env, both streams, exit code", async () => {
  await using agent = await startAgentProcess();
  await using client = await connect(agent.address);
  await Deno.mkdir(`${agent.workspace}/sub`);
  const process = await client.processes.start(
    ["sh", "-c", 'pwd; printf %s "$1$A" >&2; exit 7', "sh", "a b;*"],
    { cwd: "sub", env: { A: "=x" } },
  );
  assertEquals(await collect(process.output()), {
    stdout: `${agent.workspace}/sub\n`,
    stderr: "a b;*=x",
  });
  const state = await process.wait();
  assertEquals([state.id, state.status, state.exitCode], [process.id, "failed", 7]);
  assert(state.startedAt! <= state.finishedAt!);
  // A handle by id, with the streams apart.
  const again = client.processes.get(process.id);
  assertEquals(await toText(again.stdout), `${agent.workspace}/sub\n`);
  assertEquals(await toText(again.stderr), "a b;*=x");
  assertEquals(await collect(again.output({ stdoutOffset: Infinity, stderrOffset: 3 })), {
    stdout: "",
    stderr: ";*=x",
  });
});

Deno.test("processes: output without follow is what is there now", async () => {
  await using agent = await startAgentProcess();
  await using client = await connect(agent.address);
  const process = await client.processes.start(["sh", "-c", "echo up; exec sleep 1000"]);
  for await (const _ of process.output()) break;
  assertEquals((await collect(process.output({ follow: false }))).stdout, "up\n");
  assertEquals((await process.status()).status, "running");
  assertEquals(await process.kill(), 137);
  assertEquals((await process.wait()).status, "terminated");
  assertEquals(await process.kill(), 137);
});

Deno.test("shell: text, exit code, and the end of a command whose caller has gone", async () => {
  await using agent = await startAgentProcess();
  await using client = await connect(agent.address);
  assertEquals(await client.shell("echo out; echo err >&2; exit 3"), {
    stdout: "out\n",
    stderr: "err\n",
    exitCode: 3,
    status: "failed",
  });
  const error = await assertRejects(
    () => client.shell("echo $$ > pid; exec sleep 1000", { signal: AbortSignal.timeout(300) }),
    AteenvError,
  );
  assertEquals(error.kind, "deadline-exceeded");
  const pid = (await client.files.readText("pid")).trim();
  assertEquals((await client.shell(`kill -0 ${pid}`)).exitCode, 1);
  const tooMuch = await assertRejects(
    () => client.shell("exec yes", { maxOutputBytes: 100_000 }),
    AteenvError,
    "100000 bytes",
  );
  assertEquals(tooMuch.kind, "resource-exhausted");
});

Deno.test("files: streams, modes, empty ones, and what cannot be", async () => {
  await using agent = await startAgentProcess();
  await using client = await connect(agent.address);
  const content = new Uint8Array(5_000_000).map((_, index) => index * 7);
  assertEquals(await client.files.write("a/b", content, { mode: 0o751 }), content.length);
  assertEquals(await client.files.readBytes("a/b"), content);
  assertEquals((await Deno.stat(`${agent.workspace}/a/b`)).mode! & 0o777, 0o751);
  assertEquals(await client.files.write("empty", ""), 0);
  assertEquals(await client.files.readText("empty"), "");
  const copied = await client.files.write("copy", client.files.read("a/b"));
  assertEquals(copied, content.length);
  for (
    const [path, kind] of [
      ["nope", "not-found"],
      ["a", "failed-precondition"],
      ["/etc/hostname", "permission-denied"],
      ["", "invalid-argument"],
    ] as const
  ) {
    const error = await assertRejects(() => client.files.readText(path), AteenvError);
    assertEquals(error.kind, kind, error.message);
  }
});

Deno.test("health and version are the agent's", async () => {
  await using agent = await startAgentProcess();
  await using client = await connect(agent.address);
  const { ready, message, agentTime } = await client.health();
  assertEquals([ready, message], [true, "ok"]);
  assert(Math.abs(agentTime!.getTime() - Date.now()) < 60_000);
  assertEquals(client.agentVersion, agent.startLine.version);
});

Deno.test("output is exact through a proxy that cuts every connection after some bytes", async () => {
  await using agent = await startAgentProcess();
  await using proxy = startFaultProxy(agent.address);
  await using client = await connect(proxy.address, FAST);
  const process = await client.processes.start([
    "sh",
    "-c",
    "seq 1 1200000",
  ]);
  // A message of up to 1 MiB has to fit, or nothing would ever arrive.
  proxy.options = { cutAfterBytes: 1_500_000 };
  proxy.cut();
  const { stdout } = await collect(process.output());
  const expected = Array.from({ length: 1_200_000 }, (_, index) => `${index + 1}\n`).join("");
  assert(stdout === expected, `${stdout.length} of ${expected.length} characters`);
  assertEquals((await process.wait()).exitCode, 0);
  assert(proxy.cuts >= 5, `${proxy.cuts} cuts`);
});

Deno.test("an agent that is killed and started again is waited for; all of its output is there", async () => {
  await using state = await createTempDir();
  await using workspace = await createTempDir();
  const options = { stateDir: state.path, workspace: workspace.path };
  const first = await startAgentProcess(options);
  await using proxy = startFaultProxy(first.address);
  await using client = await connect(proxy.address, FAST);
  const finished = await client.processes.start(["sh", "-c", "echo finished; exit 5"]);
  await finished.wait();
  const running = await client.processes.start(["sh", "-c", "echo running; exec sleep 1000"]);
  for await (const _ of running.output()) break;
  const followed = collect(running.output());
  await first.crash();
  await using second = await startAgentProcess(options);
  proxy.target = second.address;
  proxy.cut();
  assertEquals((await followed).stdout, "running\n");
  const state2 = await running.wait();
  assertEquals([state2.status, state2.exitCode], ["terminated", 137]);
  assertEquals((await collect(finished.output())).stdout, "finished\n");
  assertEquals((await finished.wait()).exitCode, 5);
});

Deno.test("an agent that stops gracefully, under load, many times: the client survives it", async () => {
  await using workspace = await createTempDir();
  await Deno.writeFile(`${workspace.path}/f`, new Uint8Array(200_000));
  const first = await startAgentProcess({ workspace: workspace.path });
  await using proxy = startFaultProxy(first.address);
  await using client = await connect(proxy.address, FAST);
  let agent = first;
  for (let round = 0; round < 3; round++) {
    const reads = Array.from({ length: 200 }, () => client.files.readBytes("f"));
    await reads[0];
    const stopped = agent.stop();
    agent = await startAgentProcess({ workspace: workspace.path });
    proxy.target = agent.address;
    const results = await Promise.all(reads);
    assert(results.every((bytes) => bytes.length === 200_000));
    await stopped;
    assertEquals((await client.files.readBytes("f")).length, 200_000);
  }
  await agent[Symbol.asyncDispose]();
  await first[Symbol.asyncDispose]();
});

Deno.test("a resumed sandbox: silent connections are noticed, calls and follows go on", async () => {
  await using agent = await startAgentProcess();
  await using proxy = startFaultProxy(agent.address);
  await using client = await connect(proxy.address, {
    ...FAST,
    keepaliveMs: 200,
    keepaliveTimeoutMs: 200,
  });
  const process = await client.processes.start([
    "sh",
    "-c",
    "echo before; while ! [ -e go ]; do sleep 0.05; done; echo after",
  ]);
  const output = process.output();
  assertEquals(new TextDecoder().decode((await output.next()).value!.data), "before\n");
  proxy.freeze();
  await client.files.write("go", "");
  assertEquals((await collect(output)).stdout, "after\n");
  assertEquals((await process.wait()).exitCode, 0);
});
