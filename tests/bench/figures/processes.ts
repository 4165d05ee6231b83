// Starting processes: from StartProcess to the exit as a follower sees it.
import { type Bench, type Figure, loadOn, sized } from "../bench.ts";
import { runLocal } from "../load.ts";
import { interleave } from "../statistics.ts";
import { makeRow } from "../table.ts";

/** Spawn and files in Deno, and two empty calls, one after the other. */
async function floorMs(bench: Bench, count: number) {
  const directory = await Deno.makeTempDir({ dir: bench.directory });
  const spawn = await runLocal("spawn", String(count), directory);
  const call = await loadOn(bench, bench.floor, "unary", { inflight: 1, count: 500 });
  return { p50Ms: spawn.p50Ms + 2 * call["p50Ms"]! };
}

export const processes: Figure = {
  name: "processes",
  async measure(bench) {
    const count = sized(bench, 200, 60);
    const start = (inflight: number) => () =>
      loadOn(bench, bench.agent, "start", { inflight, count }, ["true"]);
    await start(1)();
    const { agent, floor, many } = await interleave(bench.rounds, {
      agent: start(1),
      floor: () => floorMs(bench, count),
      many: start(16),
    });
    const title = "StartProcess `true` to its exit at a follower";
    return [
      makeRow(`${title}: p50`, "ms", agent["p50Ms"]!, {
        name: "spawn to status, 2 files, 2 empty calls",
        series: floor["p50Ms"]!,
      }, { of: "difference", atMost: 3 }),
      makeRow(`${title}: p99`, "ms", agent["p99Ms"]!),
      makeRow("StartProcess alone: p50", "ms", agent["startMs"]!),
      makeRow(`${title}: agent's CPU`, "ms/process", agent["cpuMsPerCall"]!),
      makeRow(`${title}, 16 at a time`, "processes/s", many["rate"]!),
    ];
  },
};
