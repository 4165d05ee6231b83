// Mutated frames, mutated messages, mutated HTTP/1.1: the agent goes on as if nothing had been.
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { formatSample, isIdle, takeSample, waitSettled } from "../measure.ts";
import { Pulse } from "../pulse.ts";
import { atMost, exactly, flat, scaled, type Scenario } from "../scenario.ts";
import { fuzzInput, type FuzzKind } from "../wire/fuzz_input.ts";
import { runFuzzInput } from "../wire/fuzz_run.ts";

const INPUTS = 100_000;
const PARALLEL = 48;
const ROUNDS = 30;

export const fuzz: Scenario = {
  name: "fuzz",
  async run(context) {
    await using agent = await startAgentProcess({ flags: ["--retain", "100"] });
    await using pulse = await Pulse.start(agent.address);
    const wanted = scaled(context, INPUTS, 5_000);
    const perRound = Math.ceil(wanted / ROUNDS);
    const counts: Record<FuzzKind, number> = { frames: 0, messages: 0, http1: 0 };
    const failures: string[] = [];
    const memory: number[] = [];
    let inputs = 0;
    let nextSeed = context.seed;
    const before = await takeSample(agent);
    for (let round = 1; round <= ROUNDS; round++) {
      await Promise.all(Array.from({ length: PARALLEL }, async () => {
        while (inputs < round * perRound) {
          const seed = nextSeed++;
          const input = fuzzInput(seed);
          inputs += input.count;
          counts[input.kind] += input.count;
          const failure = await runFuzzInput(agent.address, input).catch(String);
          if (failure !== undefined) failures.push(`seed ${seed} (${input.kind}): ${failure}`);
        }
      }));
      const sample = await takeSample(agent);
      memory.push(sample.rssBytes);
      if (round % 5 === 0) context.note(`fuzz: ${inputs} inputs, ${formatSample(sample)}`);
    }
    // One connection and one process are the pulse's.
    const after = await waitSettled(agent, isIdle(1, 1), 60_000);
    context.note(`fuzz: at rest ${formatSample(after)}`);
    for (const failure of failures.slice(0, 20)) context.note(failure);
    const errors = agent.logLines.filter(({ level, text }) => level === "error" || text);
    for (const line of errors.slice(0, 5)) context.note(JSON.stringify(line));
    return [
      exactly(
        `inputs (${counts.frames} frames, ${counts.messages} messages, ${counts.http1} HTTP/1.1), at least`,
        inputs >= wanted,
        true,
      ),
      exactly("calls in order not answered, connections not closed", failures.length, 0),
      exactly("errors logged", errors.length, 0),
      ...pulse.findings(),
      flat("RSS", memory),
      atMost("RSS at the end", after.rssBytes / 2 ** 20, 256, "MiB"),
      atMost("descriptors at rest, against before", after.descriptors, before.descriptors + 4, ""),
      exactly("streams at rest", after.streams, 0),
    ];
  },
};
