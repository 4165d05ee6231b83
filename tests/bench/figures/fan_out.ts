// Many followers: 1,000 of one process, and 200 processes with one each.
import { type Bench, type Figure, gatedChild, loadOn, makeFifo, MIB, sized } from "../bench.ts";
import { startAgent } from "../servers.ts";
import { interleave, type Sample } from "../statistics.ts";
import { makeRow } from "../table.ts";
import { memoryMiB } from "../servers.ts";

async function fan(bench: Bench, processes: number, followers: number, bytes: number) {
  const fifo = await makeFifo(await Deno.makeTempFile({ dir: bench.directory }) + ".fifo");
  // An agent of its own: its peak of memory is this figure's.
  await using agent = await startAgent();
  const conns = Math.min(10, processes * followers);
  const sample: Sample = await loadOn(
    bench,
    agent,
    "fan",
    { processes, followers, bytes, path: fifo, conns },
    gatedChild(fifo, bytes),
  );
  return { ...sample, peakMiB: (await memoryMiB(agent.pid)).peak };
}

export const fanOut: Figure = {
  name: "fan-out",
  async measure(bench) {
    const bytes = sized(bench, 2 * MIB, MIB / 4);
    const { one, many, each } = await interleave(Math.min(bench.rounds, 3), {
      one: () => fan(bench, 1, 1, sized(bench, 256 * MIB, 64 * MIB)),
      many: () => fan(bench, 1, 1000, bytes),
      each: () => fan(bench, 200, 1, bytes),
    });
    const size = `${bytes / MIB} MiB`;
    const single = { name: "one follower", series: one["mibPerSecond"]! };
    const singleCpu = { name: "one follower", series: one["cpuMsPerMib"]! };
    return [
      makeRow(
        `1,000 followers of one process, ${size} each`,
        "MiB/s",
        many["mibPerSecond"]!,
        single,
      ),
      makeRow("1,000 followers: agent's CPU", "ms/MiB sent", many["cpuMsPerMib"]!, singleCpu),
      makeRow("1,000 followers: peak RSS", "MiB", many["peakMiB"]!),
      makeRow("1,000 followers: time to open", "s", many["readySeconds"]!),
      makeRow(
        `200 processes with a follower each, ${size} each`,
        "MiB/s",
        each["mibPerSecond"]!,
        single,
      ),
      makeRow("200 processes: agent's CPU", "ms/MiB sent", each["cpuMsPerMib"]!, singleCpu),
      makeRow("200 processes: peak RSS", "MiB", each["peakMiB"]!),
      makeRow("200 processes: time to start and open", "s", each["readySeconds"]!),
    ];
  },
};
