// GetProcess: one call, as often as possible.
import { type Bench, type Figure, loadOn, sized } from "../bench.ts";
import type { Server } from "../servers.ts";
import { interleave } from "../statistics.ts";
import { makeRow, type Row } from "../table.ts";

const FLOOR = "empty handler";

async function measureInFlight(bench: Bench, id: string, inflight: number): Promise<Row[]> {
  const ms = sized(bench, 3000, 1000);
  const once = (server: Server) => () =>
    loadOn(bench, server, "unary", { id, inflight, ms, conns: Math.min(4, inflight) });
  // The just-in-time compiler has not seen the first calls.
  await once(bench.agent)();
  await once(bench.floor)();
  const { agent, floor } = await interleave(bench.rounds, {
    agent: once(bench.agent),
    floor: once(bench.floor),
  });
  const title = `GetProcess, ${inflight} in flight`;
  const row = (what: string, unit: string, quantity: string) =>
    makeRow(`${title}: ${what}`, unit, agent[quantity]!, { name: FLOOR, series: floor[quantity]! });
  return [
    makeRow(`${title}: rate`, "calls/s", agent["rate"]!, { name: FLOOR, series: floor["rate"]! }, {
      of: "ratio",
      atLeast: 0.8,
    }),
    row("p50", "ms", "p50Ms"),
    row("p99", "ms", "p99Ms"),
    row("CPU per call", "ms", "cpuMsPerCall"),
  ];
}

export const calls: Figure = {
  name: "calls",
  async measure(bench) {
    const { id = "" } = await bench.load.run("id", { addr: bench.agent.address }, ["true"]);
    return [
      ...await measureInFlight(bench, id, 1),
      ...await measureInFlight(bench, id, 64),
    ];
  },
};
