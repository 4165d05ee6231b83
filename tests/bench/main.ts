// `deno task bench`: measures the agent against its floors and prints the table.
// Asserts nothing about time: it says which targets are met. README.md beside this file tells how it measures.
import { parseArgs } from "node:util";
import type { Bench, Figure } from "./bench.ts";
import { calls } from "./figures/calls.ts";
import { fanOut } from "./figures/fan_out.ts";
import { bigFiles, smallFiles } from "./figures/files.ts";
import { memory, start } from "./figures/footprint.ts";
import { growth } from "./figures/growth.ts";
import { flood, latency } from "./figures/outputs.ts";
import { processes } from "./figures/processes.ts";
import { createLoadGenerator } from "./load.ts";
import { startAgent, startFloor } from "./servers.ts";
import { type Row, toMarkdown } from "./table.ts";

const FIGURES: readonly Figure[] = [
  calls,
  processes,
  latency,
  flood,
  bigFiles,
  smallFiles,
  fanOut,
  start,
  memory,
  growth,
];

const HELP = `deno task bench [flags]
  --only NAMES     of ${FIGURES.map(({ name }) => name).join(",")}
  --quick          smaller sizes and three rounds
  --rounds N       rounds of each measurement (5)
  --json FILE      the table for programs; - is stdout instead of Markdown
  --client NAME    go, js, or auto (go where it is installed)`;

function parse() {
  const { values } = parseArgs({
    options: {
      only: { type: "string" },
      quick: { type: "boolean", default: false },
      rounds: { type: "string" },
      json: { type: "string" },
      client: { type: "string", default: "auto" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    Deno.exit(0);
  }
  const names = values.only?.split(",") ?? FIGURES.map(({ name }) => name);
  const unknown = names.filter((name) => !FIGURES.some((figure) => figure.name === name));
  const { client } = values;
  if (unknown.length > 0 || (client !== "auto" && client !== "go" && client !== "js")) {
    console.error(unknown.length > 0 ? `Unknown figure: ${unknown.join(", ")}` : HELP);
    Deno.exit(2);
  }
  return {
    figures: FIGURES.filter(({ name }) => names.includes(name)),
    isQuick: values.quick,
    rounds: Number(values.rounds ?? (values.quick ? 3 : 5)),
    json: values.json,
    client,
  } as const;
}

async function readFirst(path: string, pattern: RegExp): Promise<string> {
  // /proc can be opened by a child only.
  const { stdout } = await new Deno.Command("cat", { args: [path], stderr: "null" }).output();
  return pattern.exec(new TextDecoder().decode(stdout))?.[1] ?? "unknown";
}

async function describeMachine(client: string) {
  return {
    date: new Date().toISOString().slice(0, 10),
    cpu: await readFirst("/proc/cpuinfo", /model name\s*: (.*)/),
    cores: navigator.hardwareConcurrency,
    memoryGiB: Math.round(Deno.systemMemoryInfo().total / 2 ** 30),
    kernel: Deno.osRelease(),
    arch: Deno.build.arch,
    deno: Deno.version.deno,
    v8: Deno.version.v8,
    client,
    load: Deno.loadavg()[0]!.toFixed(2),
  };
}

async function measureAll(
  figures: readonly Figure[],
  bench: Bench,
): Promise<{ rows: Row[]; failed: string[] }> {
  const rows: Row[] = [];
  const failed: string[] = [];
  for (const figure of figures) {
    const startedAt = performance.now();
    try {
      rows.push(...await figure.measure(bench));
    } catch (error) {
      // The other figures are still worth having.
      failed.push(figure.name);
      console.error(`bench: ${figure.name} failed:`, error);
    }
    console.error(
      `bench: ${figure.name}: ${((performance.now() - startedAt) / 1000).toFixed(1)} s`,
    );
  }
  return { rows, failed };
}

async function main(): Promise<number> {
  const { figures, json, client, ...settings } = parse();
  const directory = await Deno.makeTempDir({ prefix: "ateenvd-bench-" });
  try {
    const load = await createLoadGenerator(directory, client);
    const machine = await describeMachine(load.name);
    await using agent = await startAgent();
    await using floor = await startFloor();
    const bench: Bench = { ...settings, load, agent, floor, directory };
    const { rows, failed } = await measureAll(figures, bench);
    const report = JSON.stringify({ machine, rounds: settings.rounds, rows, failed }, null, 2);
    if (json !== undefined && json !== "-") await Deno.writeTextFile(json, report + "\n");
    if (json === "-") console.log(report);
    else {
      console.log(Object.entries(machine).map(([name, value]) => `${name} ${value}`).join(", "));
      console.log(`\n${toMarkdown(rows)}`);
    }
    return failed.length > 0 ? 1 : 0;
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

Deno.exit(await main());
