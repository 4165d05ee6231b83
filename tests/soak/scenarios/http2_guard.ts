// Clients that close their connection after many calls, which an unguarded runtime does not survive.
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { residentBytes } from "../../helpers/proc_stats.ts";
import { isIdle, takeSample, waitSettled } from "../measure.ts";
import { atMost, exactly, scaled, type Scenario } from "../scenario.ts";
import { WorkerProcess } from "../workers/worker_process.ts";

const CALLS = 1000;
const IN_FLIGHT = 64;
const WARM_UP_ROUNDS = 12;

export const http2Guard: Scenario = {
  name: "http2-guard",
  async run(context) {
    await using agent = await startAgentProcess();
    await using worker = new WorkerProcess("call_worker.ts", [agent.address]);
    const before = await takeSample(agent);
    const rounds = scaled(context, 30, WARM_UP_ROUNDS + 4);
    const memory: number[] = [];
    let failed = 0;
    for (let round = 0; round < rounds; round++) {
      failed += await worker.ask<number>({ unary: CALLS, inFlight: IN_FLIGHT });
      memory.push(await residentBytes(agent.pid));
    }
    const after = await waitSettled(agent, isIdle(), 30_000);
    const warm = memory[WARM_UP_ROUNDS - 1]!;
    return [
      exactly(`wrong answers to ${rounds} x ${CALLS} calls at ${IN_FLIGHT}`, failed, 0),
      atMost(`RSS at the end / after ${WARM_UP_ROUNDS} rounds`, memory.at(-1)! / warm, 1.2, ""),
      atMost("RSS at the end", memory.at(-1)! / 2 ** 20, 256, "MiB"),
      atMost("descriptors at rest, against before", after.descriptors, before.descriptors + 2, ""),
    ];
  },
};
