// Whether costs stay flat: per process with history, per stream with streams, per byte with size.
import { type Bench, type Figure, gatedChild, loadOn, makeFifo, MIB, sized } from "../bench.ts";
import { startAgent } from "../servers.ts";
import { makeRow, type Row } from "../table.ts";
import { cat } from "./files.ts";

async function perProcess(bench: Bench): Promise<Row[]> {
  const points = bench.isQuick ? [1, 100, 1000] : [1, 1000, 10_000];
  const rows: Row[] = [];
  await using agent = await startAgent("--retain", "20000", "--retain-for", "2h");
  // Warm first: the first processes of an agent are slower for reasons that have nothing to do with history.
  let history = 0;
  const batch = Math.min(100, points[1]!);
  const run = (count: number, inflight: number) => {
    history += count;
    return loadOn(bench, agent, "start", { inflight, count }, ["true"]);
  };
  await using fresh = await startAgent();
  await loadOn(bench, fresh, "start", { inflight: 1, count: batch }, ["true"]);
  await run(1, 1);
  for (const point of points) {
    if (point > history) await run(point - history, 16);
    const at = history;
    const sample = await run(batch, 1);
    rows.push(
      makeRow(`start to exit, ${at} in history: p50`, "ms", [sample["p50Ms"]!]),
      makeRow(`start to exit, ${at} in history: CPU`, "ms/process", [sample["cpuMsPerCall"]!]),
    );
  }
  return rows;
}

async function perStream(bench: Bench): Promise<Row[]> {
  const rows: Row[] = [];
  const total = sized(bench, 500, 100) * MIB;
  for (const followers of [1, 30, 1000]) {
    const bytes = Math.floor(total / followers);
    await using agent = await startAgent();
    const fifo = await makeFifo(await Deno.makeTempFile({ dir: bench.directory }) + ".fifo");
    const options = { processes: 1, followers, bytes, path: fifo, conns: Math.min(10, followers) };
    const sample = await loadOn(bench, agent, "fan", options, gatedChild(fifo, bytes));
    rows.push(
      makeRow(`${followers} followers: CPU`, "ms/MiB sent", [sample["cpuMsPerMib"]!]),
    );
  }
  return rows;
}

async function perByte(bench: Bench): Promise<Row[]> {
  const rows: Row[] = [];
  const sizes = bench.isQuick ? [1024, MIB, 256 * MIB] : [1024, 10 * MIB, 10 * 1024 * MIB];
  for (const bytes of sizes) {
    const path = `${bench.agent.workspace}/sparse`;
    // Sparse: what is measured is the agent, not the disk.
    using file = await Deno.open(path, { create: true, write: true });
    await file.truncate(bytes);
    // The kernel makes the pages of a hole when they are first read.
    await cat(path, bytes);
    const count = Math.max(1, Math.min(1000, Math.floor(200 * MIB / bytes)));
    const sample = await loadOn(bench, bench.agent, "read", { path, bytes, count });
    const title = `ReadFile ${bytes / 1024} KiB`;
    rows.push(
      bytes < MIB
        ? makeRow(`${title}: CPU`, "ms/file", [sample["cpuMsPerCall"]!])
        : makeRow(`${title}: CPU`, "ms/MiB", [sample["cpuMsPerMib"]!]),
    );
    await Deno.remove(path);
  }
  return rows;
}

export const growth: Figure = {
  name: "growth",
  measure: async (
    bench,
  ) => [...await perProcess(bench), ...await perStream(bench), ...await perByte(bench)],
};
