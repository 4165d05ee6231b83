// Thousands of short processes: every byte and exit code right, and the agent as small as before.
import { AgentApi } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { diskUse, openDescriptors, residentBytes } from "../../helpers/proc_stats.ts";
import { atMost, exactly, flat, scaled, type Scenario } from "../scenario.ts";

const PARALLEL = 8;
const RETAIN = 200;
const ROUNDS = 30;

export const manyProcesses: Scenario = {
  name: "many-processes",
  async run(context) {
    await using agent = await startAgentProcess({ flags: ["--retain", String(RETAIN)] });
    using api = new AgentApi(agent.address);
    const count = scaled(context, 5000, 600);
    const memory: number[] = [];
    const descriptors: number[] = [];
    let done = 0;
    let wrong = 0;
    const one = async (index: number) => {
      const code = index % 5;
      const { process, stdout, stderr } = await api.run([
        "sh",
        "-c",
        `echo out ${index}; echo err ${index} >&2; exit ${code}`,
      ]);
      const text = new TextDecoder();
      const right = process.exitCode === code && text.decode(stdout) === `out ${index}\n` &&
        text.decode(stderr) === `err ${index}\n`;
      if (!right) wrong++;
      done++;
    };
    const perRound = Math.ceil(count / ROUNDS);
    for (let round = 0; round < ROUNDS; round++) {
      let next = round * perRound;
      const end = next + perRound;
      await Promise.all(Array.from({ length: PARALLEL }, async () => {
        while (next < end) await one(next++);
      }));
      memory.push(await residentBytes(agent.pid));
      descriptors.push(await openDescriptors(agent.pid));
    }
    const disk = await diskUse(`${agent.stateDir}/processes`);
    return [
      exactly("processes run", done, perRound * ROUNDS),
      exactly("wrong output or exit code", wrong, 0),
      flat("RSS", memory),
      atMost("RSS at the end", memory.at(-1)! / 2 ** 20, 256, "MiB"),
      flat("descriptors", descriptors),
      atMost("files kept", disk.files, RETAIN * 4 + 40, "files"),
    ];
  },
};
