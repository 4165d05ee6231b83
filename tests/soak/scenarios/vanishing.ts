// Clients that vanish without a word: stopped ones, and ones whose packets are lost.
import { type AgentProcess, startAgentProcess } from "../../helpers/agent_process.ts";
import { AgentApi } from "../../helpers/agent_api.ts";
import { openDescriptors } from "../../helpers/proc_stats.ts";
import { atMost, exactly, type Finding, type Scenario } from "../scenario.ts";
import { createWire, skipped, type Wire } from "../root.ts";
import { WorkerProcess } from "../workers/worker_process.ts";

const CLIENTS = 20;
/** The contract's minute, and the time to look. */
const GONE_WITHIN_MS = 60_000;

interface Gauges {
  readonly ateenv_open_connections: number;
  readonly ateenv_open_streams: number;
}

/** Waits until the agent has `connections` connections beside the one that asks. */
async function waitConnections(
  watcher: WorkerProcess,
  isReached: (connections: number) => boolean,
): Promise<Gauges & { readonly afterMs: number }> {
  const started = performance.now();
  for (;;) {
    const gauges = await watcher.ask<Gauges>({ gauges: true });
    const afterMs = performance.now() - started;
    if (isReached(gauges.ateenv_open_connections - 1) || afterMs > GONE_WITHIN_MS) {
      return { ...gauges, afterMs };
    }
    // The agent tells nobody when a connection goes.
    await new Promise<void>((resolve) => setTimeout(resolve, 200));
  }
}

async function judge(
  agent: AgentProcess,
  what: string,
  watcher: WorkerProcess,
  client: WorkerProcess,
  hold: string,
  vanish: () => Promise<void>,
): Promise<readonly Finding[]> {
  const before = await openDescriptors(agent.pid);
  await client.ask({ hold, connections: CLIENTS });
  await waitConnections(watcher, (connections) => connections >= CLIENTS);
  await vanish();
  const { afterMs, ateenv_open_streams } = await waitConnections(
    watcher,
    (connections) => connections === 0,
  );
  return [
    atMost(`${CLIENTS} ${what}: gone after`, afterMs / 1000, GONE_WITHIN_MS / 1000, "s"),
    exactly(`${what}: streams left`, ateenv_open_streams, 0),
    atMost(`${what}: descriptors`, await openDescriptors(agent.pid), before + 2, ""),
  ];
}

async function stopped(): Promise<readonly Finding[]> {
  await using agent = await startAgentProcess();
  using api = new AgentApi(agent.address);
  const hold = await api.start(["sleep", "1000"]);
  api[Symbol.dispose]();
  await using watcher = new WorkerProcess("call_worker.ts", [agent.address]);
  await using client = new WorkerProcess("call_worker.ts", [agent.address]);
  return await judge(agent, "clients stopped", watcher, client, hold, () => {
    client.signal("SIGSTOP");
    return Promise.resolve();
  });
}

async function cutOff(wire: Wire): Promise<readonly Finding[]> {
  await using agent = await startAgentProcess({
    flags: ["--listen", `${wire.serverAddress}:0`, "--auth", "none"],
    program: [...wire.server, "sh", "src/start.sh"],
  });
  await using watcher = new WorkerProcess("call_worker.ts", [agent.address], wire.server);
  await using client = new WorkerProcess("call_worker.ts", [agent.address], wire.client);
  const hold = await watcher.ask<string>({ start: ["sleep", "1000"] });
  return await judge(agent, "clients cut off", watcher, client, hold, () => wire.cut());
}

export const vanishing: Scenario = {
  name: "vanishing",
  async run() {
    let wire: Wire | undefined;
    let why = "";
    try {
      wire = await createWire();
    } catch (error) {
      why = `no network namespaces: ${(error as Error).message.trim()}`;
    }
    await using _wire = wire;
    const parts = await Promise.all([
      stopped(),
      wire === undefined ? [skipped(why)] : cutOff(wire),
    ]);
    return parts.flat();
  },
};
