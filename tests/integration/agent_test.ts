// The rooms wired together, in this process: calls end to end, and starts that are refused.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { toText } from "@std/streams";
import { createAgent } from "../../src/agent.ts";
import { AgentError } from "../../src/errors.ts";
import { createLogger } from "../../src/log.ts";
import { AteenvError, connect } from "../../src/mod.ts";
import { configOf, startAgent } from "../helpers/in_process_agent.ts";
import { createTempDir } from "../helpers/state_dir.ts";

const quiet = createLogger("error", () => {});

Deno.test("agent: a process and a file, end to end, and nothing left at the end", async () => {
  await using agent = await startAgent();
  await using client = await connect(agent.address);
  const result = await client.shell("echo hi; echo oops >&2; exit 3");
  assertEquals([result.stdout, result.stderr, result.exitCode], ["hi\n", "oops\n", 3]);
  await client.files.write("a/b.txt", "content", { mode: 0o600 });
  assertEquals(await client.files.readText("a/b.txt"), "content");
  assertEquals((await Deno.stat(`${agent.workspace}/a/b.txt`)).mode! & 0o777, 0o600);
  const sleeper = await client.processes.start(["sleep", "999"]);
  assertEquals(await sleeper.kill(), 137);
});

Deno.test("agent: shutdown ends followers with the last bytes and leaves no child", async () => {
  await using agent = await startAgent();
  await using client = await connect(agent.address);
  const handle = await client.processes.start([
    "sh",
    "-c",
    "trap 'echo last; exit 0' TERM; echo ready; while :; do sleep 1; done",
  ]);
  const output = handle.stdout.pipeThrough(new TextDecoderStream()).getReader();
  assertEquals((await output.read()).value, "ready\n");
  const stopped = agent.agent.shutdown(5000);
  let rest = "";
  for (let read = await output.read(); !read.done; read = await output.read()) rest += read.value;
  assertEquals(rest, "last\n");
  // The end of a follow is followed by a question for the exit code, which is still answered.
  assertEquals((await handle.status()).exitCode, 0);
  await stopped;
  const started = agent.logLines.find((line) => line["msg"] === "process started")!;
  await assertRejects(
    () => Deno.lstat(`${agent.stateDir}/proc/${started["pid"]}`),
    Deno.errors.NotFound,
  );
});

Deno.test("agent: an absolute path by the name that a linked workspace was given by", async () => {
  await using links = await createTempDir();
  await using workspace = await createTempDir();
  const link = `${links.path}/ws`;
  await Deno.symlink(workspace.path, link);
  await using agent = await startAgent("--root", workspace.path, "--given-root", link);
  await using client = await connect(agent.address);
  await client.files.write(`${link}/a.txt`, "by its link");
  assertEquals(await Deno.readTextFile(`${workspace.path}/a.txt`), "by its link");
});

Deno.test("agent: a service that is switched off is unimplemented", async () => {
  await using agent = await startAgent("--enable-process=false");
  await using client = await connect(agent.address);
  const error = await assertRejects(() => client.processes.start(["true"]), AteenvError);
  assertEquals(error.kind, "unimplemented");
  await client.files.write("x", "y");
});

Deno.test("agent: files are not served where directories cannot be pinned", async () => {
  await using workspace = await createTempDir();
  await using state = await createTempDir();
  const config = configOf([
    ...["--listen", "127.0.0.1:0", "--workspace", workspace.path, "--state-dir", state.path],
  ]);
  const error = await assertRejects(() => createAgent(config, quiet), AgentError, "confined");
  assert(error.message.includes("src/start.sh"), error.message);
});

Deno.test("agent: a second agent on one state directory is refused, the first goes on", async () => {
  await using first = await startAgent();
  const config = configOf([
    ...["--listen", "127.0.0.1:0", "--workspace", first.workspace, "--state-dir", first.stateDir],
  ]);
  await assertRejects(() => createAgent(config, quiet), AgentError, `(pid ${Deno.pid})`);
  await using client = await connect(first.address);
  assertEquals((await client.shell("echo still")).stdout, "still\n");
});

Deno.test("agent: an address that is taken leaves no lock behind", async () => {
  await using first = await startAgent();
  await using workspace = await createTempDir();
  await using state = await createTempDir();
  await Deno.symlink("/proc", `${state.path}/proc`);
  const config = configOf([
    ...["--listen", first.address, "--workspace", workspace.path, "--state-dir", state.path],
  ]);
  await assertRejects(() => createAgent(config, quiet), AgentError, first.address);
  await assertRejects(() => createAgent(config, quiet), AgentError, "give another --listen");
});

Deno.test("agent: a temporary state directory goes, also when the start fails", async () => {
  await using first = await startAgent();
  await using workspace = await createTempDir();
  const start = async (address: string) => {
    const state = await Deno.makeTempDir();
    await Deno.symlink("/proc", `${state}/proc`);
    const flags = ["--listen", address, "--workspace", workspace.path, "--state-dir", state];
    const config = configOf([...flags, "--state-temporary"]);
    return { state, start: () => createAgent(config, quiet) };
  };
  const good = await start("127.0.0.1:0");
  await (await good.start()).shutdown(0);
  await assertRejects(() => Deno.lstat(good.state), Deno.errors.NotFound);
  const bad = await start(first.address);
  await assertRejects(bad.start, AgentError, "in use");
  await assertRejects(() => Deno.lstat(bad.state), Deno.errors.NotFound);
});

Deno.test("agent: /metrics counts what runs", async () => {
  await using agent = await startAgent();
  await using client = await connect(agent.address);
  const sleeper = await client.processes.start(["sleep", "999"]);
  const response = await fetch(`http://${agent.address}/metrics`);
  const text = await toText(response.body!);
  assert(/^ateenv_running_processes 1$/m.test(text), text);
  assert(/^process_resident_memory_bytes [1-9]\d*$/m.test(text), text);
  assert(/^process_open_fds [1-9]\d*$/m.test(text), text);
  await sleeper.kill();
});
