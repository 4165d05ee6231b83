// What an agent costs by being there: start, memory at rest, after much work, and with many streams.
import { type Bench, type Figure, gatedChild, loadOn, makeFifo, MIB, sized } from "../bench.ts";
import { bytesRead, memoryMiB, type Server, startAgent, startFloor } from "../servers.ts";
import { interleave, type Sample } from "../statistics.ts";
import { makeRow, type Row } from "../table.ts";
import { fillFile } from "./files.ts";

async function startAndLook(start: () => Promise<Server>): Promise<Sample> {
  await using server = await start();
  return { startMs: server.startMs, rssMiB: (await memoryMiB(server.pid)).now };
}

async function measureStart(bench: Bench): Promise<Row[]> {
  const { agent, floor } = await interleave(Math.max(bench.rounds, 5), {
    agent: () => startAndLook(startAgent),
    floor: () => startAndLook(startFloor),
  });
  const name = "bare grpc-js server";
  return [
    makeRow("start to first readyz", "ms", agent["startMs"]!, { name, series: floor["startMs"]! }, {
      of: "difference",
      atMost: 100,
    }),
    makeRow("RSS when ready", "MiB", agent["rssMiB"]!, { name, series: floor["rssMiB"]! }, {
      of: "difference",
      atMost: 15,
    }),
  ];
}

async function rssAfterProcesses(bench: Bench, count: number): Promise<number> {
  await using agent = await startAgent();
  await loadOn(bench, agent, "start", { inflight: 16, count }, ["true"]);
  return (await memoryMiB(agent.pid)).now;
}

async function rssWithStreams(bench: Bench, followers: number): Promise<number> {
  const fifo = await makeFifo(await Deno.makeTempFile({ dir: bench.directory }) + ".fifo");
  await using agent = await startAgent();
  const options = { addr: agent.address, processes: 1, followers, conns: 10, path: fifo };
  await using _held = await bench.load.hold("hold", options, gatedChild(fifo, 0));
  return (await memoryMiB(agent.pid)).now;
}

async function peakOf(bench: Bench, operation: "read" | "write", bytes: number): Promise<number> {
  await using agent = await startAgent();
  const path = `${agent.workspace}/huge`;
  if (operation === "read") await fillFile(path, bytes);
  await loadOn(bench, agent, operation, { path, bytes, count: 1 });
  return (await memoryMiB(agent.pid)).peak;
}

/** How far the agent runs ahead of a client that takes one message and then stalls. */
async function stalledReader(bench: Bench): Promise<{ aheadMiB: number; rssMiB: number }> {
  await using agent = await startAgent();
  const path = `${agent.workspace}/huge`;
  await fillFile(path, 512 * MIB);
  const [readBefore, memoryBefore] = [await bytesRead(agent.pid), await memoryMiB(agent.pid)];
  await using held = await bench.load.hold("stall", { addr: agent.address, path });
  // Nothing tells that the agent has stopped reading but that it does not go on.
  let last = -1;
  for (let now = await bytesRead(agent.pid); now !== last; now = await bytesRead(agent.pid)) {
    last = now;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  return {
    aheadMiB: (last - readBefore - held.state.bytes) / MIB,
    rssMiB: (await memoryMiB(agent.pid)).now - memoryBefore.now,
  };
}

function single(figure: string, unit: string, value: number, atMost?: number): Row {
  const wanted = atMost === undefined ? undefined : { of: "value", atMost } as const;
  return makeRow(figure, unit, [value], undefined, wanted);
}

export const start: Figure = { name: "start", measure: measureStart };

export const memory: Figure = {
  name: "memory",
  async measure(bench) {
    const processes = sized(bench, 10_000, 1000);
    const streams = 1000;
    const bytes = sized(bench, 2048, 512) * MIB;
    const size = `${bytes / MIB} MiB`;
    const stalled = await stalledReader(bench);
    return [
      single(`RSS after ${processes} processes`, "MiB", await rssAfterProcesses(bench, processes)),
      single(`RSS with ${streams} open streams`, "MiB", await rssWithStreams(bench, streams)),
      single(`peak RSS, ReadFile of ${size}`, "MiB", await peakOf(bench, "read", bytes), 256),
      single(`peak RSS, WriteFile of ${size}`, "MiB", await peakOf(bench, "write", bytes), 256),
      single("stalled ReadFile client: read ahead of it", "MiB", stalled.aheadMiB, 32),
      single("stalled ReadFile client: RSS more", "MiB", stalled.rssMiB, 32),
    ];
  },
};
