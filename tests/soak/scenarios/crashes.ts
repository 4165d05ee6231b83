// kill -9 of the agent in the middle of bursts, again and again on one state directory.
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { AgentApi } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import type { OutputReader } from "../../helpers/output_reader.ts";
import { createTempDir } from "../../helpers/state_dir.ts";
import { createRandom, exactly, scaled, type Scenario } from "../scenario.ts";

/** What may be in memory only when the agent is killed: the live tail of the stream. */
const TAIL_BYTES = 2 * 2 ** 20;

/**
 * What the children write, beside a daemon that the end of the pipes does not end: the number of each line tells whether
 * anything is missing.
 */
const COUNTER = "i=0; while :; do i=$((i+1)); echo line $i; done";

export const crashes: Scenario = {
  name: "crashes",
  async run(context) {
    await using state = await createTempDir("ateenvd-soak-state-");
    await using workspace = await createTempDir("ateenvd-soak-ws-");
    const random = createRandom(context.seed);
    const rounds = scaled(context, 50, 8);
    let broken = 0;
    let alive = 0;
    let lost = 0;
    let wrongStatus = 0;
    let previous: { id: string; pid: number; seen: number; finished: string } | undefined;
    for (let round = 0; round <= rounds; round++) {
      const agent = await startAgentProcess({ stateDir: state.path, workspace: workspace.path });
      using api = new AgentApi(agent.address);
      if (previous !== undefined) {
        const process = await api.get(previous.id);
        if (process.status !== ProcessStatus.TERMINATED || process.exitCode !== 137) wrongStatus++;
        const { stdout } = await outputOf(api, previous.id);
        if (stdout.length < previous.seen) lost++;
        if (!isCount(stdout)) broken++;
        const kept = await outputOf(api, previous.finished);
        const { exitCode } = await api.get(previous.finished);
        if (new TextDecoder().decode(kept.stdout) !== "kept\n" || exitCode !== 7) lost++;
        if (await isAlive(previous.pid)) alive++;
      }
      if (round === rounds) {
        await agent.stop();
        break;
      }
      const finished = await api.start(["sh", "-c", "echo kept; exit 7"]);
      await api.finished(finished);
      const id = await api.start([
        "sh",
        "-c",
        `setsid sleep 600 & echo $! > ${workspace.path}/pid; ${COUNTER}`,
      ]);
      // Crash once a random number of bytes has been delivered.
      const wanted = Math.floor(random() * 3_000_000);
      const seen = await readAtLeast(api, id, wanted);
      const pid = Number(await Deno.readTextFile(`${workspace.path}/pid`));
      await agent.crash();
      previous = { id, pid, seen, finished };
    }
    return [
      exactly("crashes", rounds, rounds),
      exactly("wrong status after a restart", wrongStatus, 0),
      exactly("outputs with a hole or torn", broken, 0),
      exactly("outputs shorter than delivered on disk, or finished ones lost", lost, 0),
      exactly("children still alive after a restart", alive, 0),
    ];
  },
};

/** Whether the text is "line 1", "line 2", ... with at most the last line cut. */
function isCount(bytes: Uint8Array): boolean {
  const lines = new TextDecoder().decode(bytes).split("\n");
  const last = lines.pop()!;
  return lines.every((line, index) => line === `line ${index + 1}`) &&
    `line ${lines.length + 1}`.startsWith(last);
}

/** Whether the process is there and no zombie. */
async function isAlive(pid: number): Promise<boolean> {
  const { stdout } = await new Deno.Command("cat", { args: [`/proc/${pid}/stat`], stderr: "null" })
    .output();
  const text = new TextDecoder().decode(stdout);
  return /^\d+ \(.*\) [^ZX]/s.test(text);
}

async function outputOf(api: AgentApi, id: string): Promise<OutputReader> {
  using reader = api.outputs(id);
  await reader.rest();
  return reader;
}

/** Follows until so many bytes have come; returns how many of them must be on disk. */
async function readAtLeast(api: AgentApi, id: string, bytes: number): Promise<number> {
  using reader = api.outputs(id, { follow: true });
  while (reader.stdoutBytes < bytes && await reader.next());
  // A follower is served before the disk is: at most one live tail of it.
  return Math.max(0, reader.stdoutBytes - TAIL_BYTES);
}
