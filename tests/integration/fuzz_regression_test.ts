// Inputs of the fuzzer (tests/soak) that the agent once failed on, and a sample of those that it never did.
// A soak run names the seed of each failure: it is added here together with what it broke.
import { assertEquals } from "@std/assert";
import { AgentApi } from "../helpers/agent_api.ts";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { fuzzInput } from "../soak/wire/fuzz_input.ts";
import { runFuzzInput } from "../soak/wire/fuzz_run.ts";

/** Seed, and what it broke. */
const FAILED: readonly (readonly [number, string])[] = [
  [7, "broken calls as errors in the log; unanswered starts whose overdue kill ended the agent"],
];

/** Enough that all kinds of input occur, hundreds of broken calls among them. */
const SAMPLE = Array.from({ length: 300 }, (_, index) => index + 1);
const PARALLEL = 16;

Deno.test("the agent takes the inputs that it once failed on, and a sample of the others", async () => {
  await using agent = await startAgentProcess();
  const seeds = [...FAILED.map(([seed]) => seed), ...SAMPLE];
  const failures: string[] = [];
  await Promise.all(Array.from({ length: PARALLEL }, async () => {
    for (let seed; (seed = seeds.pop()) !== undefined;) {
      const failure = await runFuzzInput(agent.address, fuzzInput(seed)).catch(String);
      if (failure !== undefined) failures.push(`seed ${seed}: ${failure}`);
    }
  }));
  assertEquals(failures, []);
  assertEquals(agent.logLines.filter(({ level, text }) => level === "error" || text), []);
  using api = new AgentApi(agent.address);
  assertEquals(await api.sh("echo served"), "served");
});
