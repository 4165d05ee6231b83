// ReadFile and WriteFile: one big file, a small one, many small ones.
import { type Bench, type Figure, loadOn, MIB, sized } from "../bench.ts";
import { runLocal } from "../load.ts";
import { interleave, type Sample } from "../statistics.ts";
import { makeRow, type Row } from "../table.ts";

const FLOOR = "grpc-js from memory, 64 KiB messages";

/** Makes a file of `bytes` zeroes that are really there. */
export async function fillFile(path: string, bytes: number): Promise<void> {
  const block = new Uint8Array(MIB);
  using file = await Deno.open(path, { create: true, write: true });
  for (let left = bytes; left > 0; left -= block.length) {
    await file.write(block.subarray(0, Math.min(left, block.length)));
  }
}

/** Reads a file by the kernel's own means, which also brings it into the page cache. */
export async function cat(path: string, bytes: number): Promise<Sample> {
  const startedAt = performance.now();
  await new Deno.Command("sh", { args: ["-c", `cat "$0" >/dev/null`, path] }).output();
  return { mibPerSecond: bytes / MIB / ((performance.now() - startedAt) / 1000) };
}

async function measureBig(bench: Bench): Promise<Row[]> {
  const { agent, floor } = bench;
  const bytes = sized(bench, 1024, 200) * MIB;
  const path = `${agent.workspace}/big`;
  await fillFile(path, bytes);
  const once = { bytes, count: 1 };
  const rounds = await interleave(bench.rounds, {
    read: () => loadOn(bench, agent, "read", { path, ...once }),
    readFloor: () => loadOn(bench, floor, "read", { path: bytes, ...once }),
    cat: () => cat(path, bytes),
    write: () => loadOn(bench, agent, "write", { path: `${path}.up`, ...once }),
    writeFloor: () => loadOn(bench, floor, "write", { path: "x", ...once }),
    writeBig: () =>
      loadOn(bench, agent, "write", { path: `${path}.up`, ...once, chunk: MIB - 4096 }),
  });
  await Deno.remove(path);
  await Deno.remove(`${path}.up`);
  const speed = "mibPerSecond";
  const cpu = "cpuMsPerMib";
  const wanted = { of: "ratio", atLeast: 1.2 } as const;
  const title = `${bytes / MIB} MiB`;
  const against = (series: Readonly<Record<string, readonly number[]>>, quantity: string) => ({
    name: FLOOR,
    series: series[quantity]!,
  });
  const { read, readFloor, write, writeFloor, writeBig } = rounds;
  return [
    makeRow(`ReadFile ${title}`, "MiB/s", read[speed]!, against(readFloor, speed), wanted),
    makeRow(`ReadFile ${title}`, "MiB/s", read[speed]!, {
      name: "`cat` to /dev/null",
      series: rounds.cat[speed]!,
    }),
    makeRow(`ReadFile ${title}: CPU`, "ms/MiB", read[cpu]!, against(readFloor, cpu)),
    makeRow(`WriteFile ${title}`, "MiB/s", write[speed]!, against(writeFloor, speed), wanted),
    makeRow(`WriteFile ${title}: CPU`, "ms/MiB", write[cpu]!, against(writeFloor, cpu)),
    makeRow(
      `WriteFile ${title} in 1020 KiB messages`,
      "MiB/s",
      writeBig[speed]!,
      against(writeFloor, speed),
    ),
  ];
}

async function measureSmall(bench: Bench): Promise<Row[]> {
  const { agent, floor } = bench;
  const bytes = 4096;
  const count = sized(bench, 2000, 500);
  const path = `${agent.workspace}/small`;
  await fillFile(path, bytes);
  const rounds = await interleave(bench.rounds, {
    read: () => loadOn(bench, agent, "read", { path, bytes, count }),
    readFloor: () => loadOn(bench, floor, "read", { path: bytes, bytes, count }),
    write: () => loadOn(bench, agent, "write", { path: `${path}.up`, bytes, count }),
    writeFloor: async () => {
      const call = await loadOn(bench, floor, "write", { path: "x", bytes, count });
      const replace = await runLocal("replace", String(count), agent.workspace);
      return { p50Ms: call["p50Ms"]! + replace.p50Ms };
    },
  });
  const p50 = "p50Ms";
  return [
    makeRow("ReadFile 4 KiB: p50", "ms", rounds.read[p50]!, {
      name: FLOOR,
      series: rounds.readFloor[p50]!,
    }),
    makeRow("WriteFile 4 KiB: p50", "ms", rounds.write[p50]!, {
      name: "the same, and create + rename in Deno",
      series: rounds.writeFloor[p50]!,
    }),
  ];
}

async function measureMany(bench: Bench): Promise<Row[]> {
  const { agent, floor } = bench;
  const count = sized(bench, 10_000, 1000);
  const bytes = 1000;
  const options = { bytes, count, inflight: 16 };
  const path = `${agent.workspace}/many/%d`;
  const rounds = await interleave(bench.rounds, {
    write: () => loadOn(bench, agent, "write", { path, ...options }),
    writeFloor: () => loadOn(bench, floor, "write", { path: "x", ...options }),
    read: () => loadOn(bench, agent, "read", { path, ...options }),
    readFloor: () => loadOn(bench, floor, "read", { path: bytes, ...options }),
  });
  const title = `${count} files of ${bytes} bytes, 16 at a time`;
  return [
    makeRow(`ReadFile, ${title}`, "files/s", rounds.read["rate"]!, {
      name: FLOOR,
      series: rounds.readFloor["rate"]!,
    }),
    makeRow(`WriteFile, ${title}`, "files/s", rounds.write["rate"]!, {
      name: FLOOR,
      series: rounds.writeFloor["rate"]!,
    }),
  ];
}

export const bigFiles: Figure = { name: "big-files", measure: measureBig };
export const smallFiles: Figure = {
  name: "small-files",
  measure: async (bench) => [...await measureSmall(bench), ...await measureMany(bench)],
};
