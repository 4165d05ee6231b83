// What the real agent logs at each level, field by field: a field that is new here is a decision.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentApi } from "../helpers/agent_api.ts";
import { AgentStartError, type LogLine, startAgentProcess } from "../helpers/agent_process.ts";

const TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

function ofMessage(lines: readonly LogLine[], message: string): LogLine[] {
  return lines.filter(({ msg }) => msg === message);
}

/** Field names beside time, level and message. */
function fields(line: LogLine | undefined): string[] {
  return Object.keys(line ?? {}).filter((name) => !["time", "level", "msg"].includes(name)).sort();
}

Deno.test("log at debug: a line for each finished call, and nothing of what it carried", async () => {
  await using agent = await startAgentProcess({ flags: ["--log-level", "debug"] });
  using api = new AgentApi(agent.address);
  const metadata = { traceparent: TRACEPARENT };
  const content = "payload-".repeat(1000);
  await api.write("file", content, 0, { metadata });
  await api.read("file");
  await api.read("missing").catch(() => {});
  const id = await api.start(["sh", "-c", "echo output; exec sleep 999", "argument"]);
  using reader = api.outputs(id, { follow: true });
  await reader.until("output\n");
  await api.get(id, { metadata });
  await api.kill(id);
  await reader.rest();
  await agent.stop();

  const calls = ofMessage(agent.logLines, "call finished");
  const of = (method: string) => calls.filter((line) => String(line.method).endsWith(`/${method}`));
  assertEquals(of("ReadFile").map(({ code }) => code), ["OK", "NOT_FOUND"]);
  const counts = ["WriteFile", "StartProcess", "StreamProcessOutputs", "GetProcess", "KillProcess"]
    .map((method) => of(method).map(({ code }) => code));
  assertEquals(counts, [["OK"], ["OK"], ["OK"], ["OK"], ["OK"]]);
  const plain = ["bytesIn", "bytesOut", "code", "durationMs", "method", "peer"];
  for (const line of calls) {
    assertEquals(line.level, "debug");
    assertEquals(fields(line).filter((name) => name !== "traceparent"), plain);
    assert(/^127\.0\.0\.1:\d+$/.test(String(line.peer)), `${line.peer}`);
    assert(Number(line.durationMs) >= 0);
  }
  const [write] = of("WriteFile");
  assertEquals([write?.method, write?.traceparent], [
    "/ateenv.v1alpha.FileSystemService/WriteFile",
    TRACEPARENT,
  ]);
  assert(Number(write?.bytesIn) > content.length);
  assert(Number(of("ReadFile")[0]?.bytesOut) > content.length);
  assertEquals(of("KillProcess")[0]?.traceparent, undefined);
  const text = JSON.stringify(agent.logLines);
  for (const word of ["payload-", "output\\n", "argument", "sleep"]) {
    assert(!text.includes(word), word);
  }
});

Deno.test("log at info: a line at the start and the end of a process, none for calls", async () => {
  await using agent = await startAgentProcess();
  using api = new AgentApi(agent.address);
  await api.run(["sh", "-c", "echo 12345; echo 123 >&2; exit 3"]);
  const killed = await api.start(["sleep", "999"]);
  await api.kill(killed);
  await api.run(["no-such-program"]);
  await agent.stop();
  const lines = agent.logLines;
  assertEquals(lines.filter(({ level }) => level !== "info"), []);
  assertEquals(ofMessage(lines, "call finished"), []);
  const started = ofMessage(lines, "process started");
  assertEquals(started.map(fields), Array(2).fill(["argc", "pid", "processId"]));
  assertEquals(started.map(({ argc }) => argc), [3, 2]);
  const finished = ofMessage(lines, "process finished");
  assertEquals(
    finished.map((
      { code, signal, stdoutBytes, stderrBytes },
    ) => [code, signal, stdoutBytes, stderrBytes]),
    [
      [3, null, 6, 4],
      [137, "SIGKILL", 0, 0],
    ],
  );
  for (const line of finished) assert(Number(line.durationMs) >= 0);
  assertEquals(
    ofMessage(lines, "process could not be run").map(({ code }) => code),
    [127],
  );
});

Deno.test("log at warn and error: less is written, and the reason of a failed start always", async () => {
  await using first = await startAgentProcess();
  // Warns (LD_* under scoped run) and then fails: the state directory is the first agent's.
  const levelsAt = async (...flags: string[]) => {
    const error = await assertRejects(() =>
      startAgentProcess({
        flags: ["--state-dir", first.stateDir, "--allow-run", "sh", ...flags],
        env: { LD_BIND_NOW: "1", ATEENV_LOG_LEVEL: "error" },
      }), AgentStartError);
    assertEquals(error.code, 1, error.stderr);
    return error.stderr.trim().split("\n").map((line) => JSON.parse(line).level);
  };
  assertEquals(await levelsAt(), ["error"]);
  assertEquals(await levelsAt("--log-level", "warn"), ["warn", "error"]);
});

Deno.test("regression: an agent that fails before it is up ends with 1 and says why", async () => {
  // Not through start.sh: a permission is missing that the agent needs before anything can be caught.
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--no-prompt", "--allow-env=ATEENV_*,PORT,WORKSPACE,WORKDIR,LOG_DIR"],
      new URL("../../src/main.ts", import.meta.url).pathname,
      ...["--state-dir", "/nowhere"],
    ],
  }).output();
  const text = new TextDecoder().decode(stderr);
  assertEquals(code, 1, text);
  assertEquals(JSON.parse(text).msg, "the agent cannot run");
});
