// The ten functions in which a .cpuprofile spent most of its time, as a Markdown table.
// Reads a file and prints; must not measure.

interface Profile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: {
      readonly functionName: string;
      readonly url: string;
      readonly lineNumber: number;
    };
  }[];
  readonly samples: readonly number[];
  /** Microseconds between a sample and the one before. */
  readonly timeDeltas: readonly number[];
}

const path = Deno.args[0];
if (path === undefined) {
  console.error("usage: deno run --allow-read tests/bench/profile.ts FILE.cpuprofile");
  Deno.exit(2);
}
const { nodes, samples, timeDeltas }: Profile = JSON.parse(await Deno.readTextFile(path));
const names = new Map(nodes.map(({ id, callFrame: { functionName, url, lineNumber } }) => {
  const file = url === "" ? "" : ` ${url.slice(url.lastIndexOf("/") + 1)}:${lineNumber + 1}`;
  return [id, `${functionName || "(anonymous)"}${file}`];
}));
const selfUs = new Map<string, number>();
let busyUs = 0;
samples.forEach((id, index) => {
  const name = names.get(id) ?? "?";
  if (name === "(idle)") return;
  const us = timeDeltas[index] ?? 0;
  busyUs += us;
  selfUs.set(name, (selfUs.get(name) ?? 0) + us);
});
console.log("| self time | function |\n| --- | --- |");
for (const [name, us] of [...selfUs].sort((a, b) => b[1] - a[1]).slice(0, 10)) {
  console.log(`| ${(100 * us / busyUs).toFixed(1)} % | \`${name}\` |`);
}
