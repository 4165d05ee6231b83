// A full disk: children go on, what is lost is said to be lost, and space that comes back is used.
import { type ServiceError, status } from "@grpc/grpc-js";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { createTempDir } from "../../helpers/state_dir.ts";
import { exactly, type Finding, type Scenario } from "../scenario.ts";
import { mountTmpfs, skipped } from "../root.ts";

const STATE_BYTES = 16 * 2 ** 20;
const WORKSPACE_BYTES = 8 * 2 ** 20;
const OUTPUT_LINES = 4_000_000;

function isTailOf(text: string, lastLine: number): boolean {
  const lines = text.trimEnd().split("\n").map(Number);
  return lines.length > 0 && lines.at(-1) === lastLine &&
    lines.slice(1).every((line, index) => line === lastLine - lines.length + 2 + index);
}

async function fullState(api: AgentApi, statePath: string, logged: () => number) {
  const findings: Finding[] = [];
  const wanted = (await api.run(["sh", "-c", "seq 1 1000"])).text;
  await Deno.writeFile(`${statePath}/filler`, new Uint8Array(STATE_BYTES / 2));
  const id = await api.start(["sh", "-c", `seq 1 ${OUTPUT_LINES}; exit 5`]);
  const { exitCode } = await api.finished(id);
  findings.push(exactly("a child whose output no disk takes goes on, exit code", exitCode, 5));
  using lost = api.outputs(id);
  const error = await lost.rest().then(() => undefined, (error: ServiceError) => error);
  findings.push(exactly("its output from 0 on", status[error?.code ?? 0], "OUT_OF_RANGE"));
  const first = Number(error?.metadata.get("ateenv-first-stdout-offset")[0] ?? NaN);
  using kept = api.outputs(id, { stdoutOffset: first });
  await kept.rest();
  const total = Array.from({ length: OUTPUT_LINES }, (_, index) => String(index + 1).length + 1)
    .reduce((sum, length) => sum + length, 0);
  findings.push(
    exactly("first offset + what is there = what was written", first + kept.stdoutBytes, total),
    exactly("what is there is the end of it", isTailOf(kept.text, OUTPUT_LINES), true),
    exactly(
      "lines in the log about it, at least one and few",
      logged() >= 1 && logged() <= 4,
      true,
    ),
  );
  // Started on the full disk: whatever the answer, the agent has to give one.
  const started = await api.run(["echo", "full"]).then(
    ({ text }) => text === "full\n" ? "OK" : text,
    (error: ServiceError) => status[error.code] ?? String(error),
  );
  findings.push({
    what: "a start on the full disk",
    measured: started,
    wanted: "OK or RESOURCE_EXHAUSTED",
    ok: started === "OK" || started === "RESOURCE_EXHAUSTED",
  });
  await Deno.remove(`${statePath}/filler`);
  const again = await api.run(["sh", "-c", "seq 1 1000"]);
  findings.push(exactly("space that came back is used", again.text, wanted));
  return findings.map((finding) => finding.measured.length > 60 ? shorten(finding) : finding);
}

function shorten(finding: Finding): Finding {
  return { ...finding, measured: finding.ok ? "same" : "other", wanted: "same" };
}

async function fullWorkspace(api: AgentApi): Promise<readonly Finding[]> {
  await api.write("file", "old");
  const upload = api.write("file", new Uint8Array(2 * WORKSPACE_BYTES));
  const { details } = await rejectsWith(upload, status.RESOURCE_EXHAUSTED);
  const strays = await api.sh("find . -type f | sort");
  const old = await api.readText("file");
  await api.write("file", "new");
  return [
    exactly("an upload to the full disk", `RESOURCE_EXHAUSTED (${details})` !== "", true),
    exactly("the old file", old, "old"),
    exactly("files left", strays, "./file"),
    exactly("an upload afterwards", await api.readText("file"), "new"),
  ];
}

export const fullDisk: Scenario = {
  name: "full-disk",
  async run() {
    await using state = await createTempDir("ateenvd-soak-state-");
    await using workspace = await createTempDir("ateenvd-soak-ws-");
    await using mounts = new AsyncDisposableStack();
    try {
      mounts.use(await mountTmpfs(state.path, STATE_BYTES));
      mounts.use(await mountTmpfs(workspace.path, WORKSPACE_BYTES));
    } catch (error) {
      return [skipped(`no tmpfs: ${(error as Error).message.trim()}`)];
    }
    await using agent = await startAgentProcess({
      stateDir: state.path,
      workspace: workspace.path,
    });
    using api = new AgentApi(agent.address);
    const logged = () =>
      agent.logLines.filter(({ level }) => level === "warn" || level === "error").length;
    return [
      ...await fullState(api, state.path, logged),
      ...await fullWorkspace(api),
    ];
  },
};
