// Trees that fork while they are killed, and fifty kills at once.
import { AgentApi } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { Pulse } from "../pulse.ts";
import { exactly, scaled, type Scenario } from "../scenario.ts";

const KILLS_AT_ONCE = 50;

/**
 * Forks for ever, half of it into sessions of its own, with at most a few hundred processes at a time: each
 * branch waits for its leaves, which last a moment.
 */
const STORM = `branch() {
  while :; do
    for leaf in 1 2 3 4 5 6 7 8; do sleep 0.0$leaf & done
    setsid sh -c 'for leaf in 1 2 3 4; do sleep 0.0$leaf & done; wait'
    wait
  done
}
for twig in 1 2 3 4 5 6 7 8 9 10 11 12; do branch & done
echo storming
wait`;

/** Processes that carry the marker of a process. */
async function survivors(processId: string): Promise<number> {
  const { stdout } = await new Deno.Command("sh", {
    args: ["-c", `grep -lszx "ATEENV_PROCESS_ID=${processId}" /proc/[0-9]*/environ`],
    stderr: "null",
  }).output();
  return new TextDecoder().decode(stdout).split("\n").filter((line) => line !== "").length;
}

export const killStorms: Scenario = {
  name: "kill-storms",
  async run(context) {
    await using agent = await startAgentProcess();
    await using pulse = await Pulse.start(agent.address);
    using api = new AgentApi(agent.address);
    const storms = scaled(context, 20, 3);
    let repeated = 0;
    let left = 0;
    let wrongCode = 0;
    for (let storm = 0; storm < storms; storm++) {
      const id = await api.start(["sh", "-c", STORM]);
      {
        using reader = api.outputs(id, { follow: true });
        await reader.until("storming");
      }
      for (;;) {
        try {
          if (await api.kill(id) !== 137) wrongCode++;
          break;
        } catch (error) {
          if ((error as { code?: number }).code !== 4) throw error;
          repeated++;
        }
      }
      left += await survivors(id);
    }
    const rounds = scaled(context, 10, 2);
    for (let round = 0; round < rounds; round++) {
      const ids: string[] = [];
      for (let index = 0; index < KILLS_AT_ONCE; index++) {
        ids.push(await api.start(["sh", "-c", "(setsid sleep 60 &) ; sleep 60 & exec sleep 60"]));
      }
      const codes = await Promise.all(ids.map((id) => api.kill(id)));
      wrongCode += codes.filter((code) => code !== 137).length;
      for (const id of ids) left += await survivors(id);
    }
    context.note(`kill-storms: ${repeated} kills had to be repeated`);
    return [
      exactly(
        `${storms} storms and ${rounds} x ${KILLS_AT_ONCE} kills at once, codes other than 137`,
        wrongCode,
        0,
      ),
      exactly("processes left", left, 0),
      ...pulse.findings(),
    ];
  },
};
