// Output on its way from child to client: how late, how much.
import { type Bench, type Figure, loadOn, MIB, sized } from "../bench.ts";
import { runLocal } from "../load.ts";
import { interleave } from "../statistics.ts";
import { makeRow, type Row } from "../table.ts";

async function measureLatency(bench: Bench): Promise<Row[]> {
  const child = bench.load.emitter(sized(bench, 500, 200), 4);
  const { agent, floor } = await interleave(bench.rounds, {
    agent: () => loadOn(bench, bench.agent, "latency", {}, child),
    floor: async () => {
      const { p50Ms, p99Ms } = await runLocal("latency", ...child);
      return { p50Ms, p99Ms };
    },
  });
  const name = "pipe read in Deno";
  const title = "child's write to client's message";
  return [
    makeRow(`${title}: p50`, "ms", agent["p50Ms"]!, { name, series: floor["p50Ms"]! }, {
      of: "difference",
      atMost: 2,
    }),
    makeRow(`${title}: p50 (contract)`, "ms", agent["p50Ms"]!, undefined, {
      of: "value",
      atMost: 5,
    }),
    makeRow(`${title}: p99`, "ms", agent["p99Ms"]!, { name, series: floor["p99Ms"]! }),
  ];
}

async function measureFlood(bench: Bench): Promise<Row[]> {
  // Bytes below the spool limit, so that each round stores the same.
  const bytes = sized(bench, 1000, 200) * MIB;
  const child = ["head", "-c", String(bytes), "/dev/zero"];
  const path = `${bench.directory}/flood`;
  const toNull = async () => {
    const startedAt = performance.now();
    await new Deno.Command("sh", { args: ["-c", `"$@" >/dev/null`, "sh", ...child] }).output();
    return {
      mibPerSecond: bytes / MIB / ((performance.now() - startedAt) / 1000),
    };
  };
  const toFile = async () => {
    const answer = await runLocal("pipe-to-file", path, ...child);
    await Deno.remove(path);
    return { mibPerSecond: answer.bytes / MIB / answer.seconds };
  };
  const flood = (follow: boolean) => () =>
    loadOn(bench, bench.agent, "flood", { bytes, follow }, child);
  const { followed, alone, file, nothing } = await interleave(bench.rounds, {
    followed: flood(true),
    alone: flood(false),
    file: toFile,
    nothing: toNull,
  });
  const name = "pipe to file in Deno";
  const series = file["mibPerSecond"]!;
  return [
    makeRow("flood with a follower", "MiB/s", followed["mibPerSecond"]!, { name, series }, {
      of: "ratio",
      atLeast: 0.6,
    }),
    makeRow("flood without a follower", "MiB/s", alone["mibPerSecond"]!, { name, series }),
    makeRow("flood without a follower", "MiB/s", alone["mibPerSecond"]!, {
      name: "`head -c` to /dev/null",
      series: nothing["mibPerSecond"]!,
    }),
    makeRow("flood with a follower: agent's CPU", "ms/MiB", followed["cpuMsPerMib"]!),
    makeRow("flood without a follower: agent's CPU", "ms/MiB", alone["cpuMsPerMib"]!),
  ];
}

export const latency: Figure = { name: "latency", measure: measureLatency };
export const flood: Figure = { name: "flood", measure: measureFlood };
