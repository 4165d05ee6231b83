// A thousand followers of one process, two hundred processes with one each, and one that stands still.
import { AgentApi } from "../../helpers/agent_api.ts";
import { type AgentProcess, startAgentProcess } from "../../helpers/agent_process.ts";
import { isIdle, takeSample, waitSettled } from "../measure.ts";
import { Pulse } from "../pulse.ts";
import { atMost, exactly, type Finding, scaled, type Scenario } from "../scenario.ts";
import type { Followed } from "../workers/call_worker.ts";
import { WorkerProcess } from "../workers/worker_process.ts";

const STALL_MS = 30_000;
/** Most that this may cost, crowds, stalled reader and all. */
const MAX_RSS_MIB = 512;

/** What a child writes once somebody has written to the FIFO `gate`. */
function gated(command: string): readonly string[] {
  return ["sh", "-c", `read -r line <gate; ${command}`];
}

/** The hash of what a command prints. */
async function hashOf(command: string): Promise<string> {
  const { stdout } = await new Deno.Command("sh", { args: ["-c", `${command} | sha256sum`] })
    .output();
  return new TextDecoder().decode(stdout).slice(0, 64);
}

/** Opens the gate: each of `count` readers gets its line. */
async function openGate(agent: AgentProcess, count: number): Promise<void> {
  const gate = await Deno.open(`${agent.workspace}/gate`, { read: true, write: true });
  // Shells read byte by byte: whoever gets the end of a line goes on.
  await gate.write(new TextEncoder().encode("go\n".repeat(count)));
  await waitSettled(agent, (sample) => sample.running <= 1, 300_000);
  gate.close();
}

function wrong(followed: readonly Followed[], hash: string): number {
  return followed.filter((one) => one.error !== "" || one.hash !== hash).length;
}

/** Looks at the memory until `work` is done; the most that it has seen, in MiB. */
async function watchMemory(agent: AgentProcess, work: Promise<unknown>): Promise<number> {
  let done = false;
  const noted = work.finally(() => done = true);
  let most = 0;
  while (!done) {
    await waitSettled(agent, (sample) => {
      most = Math.max(most, sample.rssBytes / 2 ** 20);
      return done;
    }, 1_000);
  }
  await noted;
  return most;
}

export const followers: Scenario = {
  name: "followers",
  async run(context) {
    await using agent = await startAgentProcess();
    await new Deno.Command("mkfifo", { args: [`${agent.workspace}/gate`] }).output();
    await using pulse = await Pulse.start(agent.address);
    using api = new AgentApi(agent.address);
    await using crowd = new WorkerProcess("call_worker.ts", [agent.address]);
    await using stalled = new WorkerProcess("call_worker.ts", [agent.address]);
    const findings: Finding[] = [];

    const command = `seq 1 200000`;
    const hash = await hashOf(command);
    const count = scaled(context, 1000, 200);
    const id = await api.start(gated(command));
    const crowded = crowd.ask<Followed[]>({ follow: Array(count).fill(id), connections: 10 });
    await waitSettled(agent, (sample) => sample.streams >= count, 60_000);
    await openGate(agent, 1);
    const crowdMemory = await watchMemory(agent, crowded);
    findings.push(
      exactly(
        `of ${count} followers of one process, not byte-exact`,
        wrong(await crowded, hash),
        0,
      ),
      atMost("RSS meanwhile", crowdMemory, MAX_RSS_MIB, "MiB"),
    );

    // The stalled reader stands still in the middle of 100 MB, which go on.
    const large = "seq 1 12000000";
    const largeHash = await hashOf(large);
    const largeId = await api.start(gated(large));
    const processes = scaled(context, 200, 50);
    const ids: string[] = [];
    for (let index = 0; index < processes; index++) ids.push(await api.start(gated(command)));
    const slow = stalled.ask<Followed[]>({ follow: [largeId], connections: 1 });
    const each = crowd.ask<Followed[]>({ follow: ids, connections: 10 });
    await waitSettled(agent, (sample) => sample.streams >= processes + 1, 60_000);
    stalled.signal("SIGSTOP");
    const timer = Promise.withResolvers<void>();
    setTimeout(timer.resolve, STALL_MS * context.scale);
    const running = openGate(agent, processes + 1);
    const memory = await watchMemory(agent, Promise.all([each, running, timer.promise]));
    stalled.signal("SIGCONT");
    const slowMemory = await watchMemory(agent, slow);
    findings.push(
      exactly(
        `of ${processes} followers of one process each, not byte-exact`,
        wrong(await each, hash),
        0,
      ),
      exactly("the stalled follower, not byte-exact", wrong(await slow, largeHash), 0),
      atMost("RSS meanwhile", Math.max(memory, slowMemory), MAX_RSS_MIB, "MiB"),
    );
    const after = await waitSettled(agent, isIdle(2, 1), 30_000);
    findings.push(exactly("streams at rest", after.streams, 0), ...pulse.findings());
    context.note(
      `followers: RSS at rest ${((await takeSample(agent)).rssBytes / 2 ** 20).toFixed(0)} MiB`,
    );
    return findings;
  },
};
