// 1,024 descriptors: all processes that fit, then connections until there is none left, and still a kill.
import { status } from "@grpc/grpc-js";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { isIdle, waitSettled } from "../measure.ts";
import { openDescriptors } from "../../helpers/proc_stats.ts";
import { atMost, exactly, type Scenario } from "../scenario.ts";
import { RawConnection } from "../wire/raw_connection.ts";

const LIMIT = 1024;
const CONNECTIONS = 400;

export const descriptors: Scenario = {
  name: "descriptors",
  async run(context) {
    await using agent = await startAgentProcess({ before: `ulimit -n ${LIMIT}` });
    using api = new AgentApi(agent.address);
    const idle = await openDescriptors(agent.pid);
    const most = Number(agent.startLine["maxProcesses"]);
    const ids: string[] = [];
    // Two streams of output each, so that all of their files are open.
    for (let index = 0; index < most; index++) {
      ids.push(await api.start(["sh", "-c", "echo out; echo err >&2; exec sleep 600"]));
    }
    await rejectsWith(
      api.start(["true"]),
      status.RESOURCE_EXHAUSTED,
      `maximum concurrent processes limit (${most}) reached`,
    );
    const connections: RawConnection[] = [];
    for (let index = 0; index < CONNECTIONS; index++) {
      connections.push(await RawConnection.open(agent.address));
    }
    const used = await waitSettledDescriptors(agent.pid);
    context.note(`descriptors: ${most} processes, ${used} of ${LIMIT} descriptors`);
    const codes = await Promise.all(ids.slice(0, 10).map((id) => api.kill(id)));
    const shown = await api.outputs(ids[20]!).rest();
    for (const connection of connections) connection[Symbol.dispose]();
    codes.push(...await Promise.all(ids.slice(10).map((id) => api.kill(id))));
    const after = await waitSettled(agent, isIdle(1), 30_000);
    const { text } = await api.run(["echo", "usable"]);
    const failing = agent.logLines.filter(({ msg }) => msg === "cannot accept connections");
    context.note(`descriptors: accepting failed ${failing.length} times`);
    return [
      exactly(`${most} processes; a start beyond them`, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
      exactly("descriptors run out", used >= LIMIT - 8, true),
      exactly(
        "kills without descriptors, codes other than 137",
        codes.filter((code) => code !== 137).length,
        0,
      ),
      exactly("output can be read", shown.text, "out\n"),
      exactly("usable afterwards", text, "usable\n"),
      atMost("descriptors afterwards", after.descriptors, idle + 8, ""),
    ];
  },
};

/** Looks until two looks say the same: the agent accepts in its own time. */
async function waitSettledDescriptors(pid: number): Promise<number> {
  for (let last = 0;;) {
    const now = await openDescriptors(pid);
    if (now === last) return now;
    last = now;
    await new Promise<void>((resolve) => setTimeout(resolve, 500));
  }
}
