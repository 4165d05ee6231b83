// `deno task test:soak [--tenth | --scale X] [--only NAME] [--seed N]`: long loads on a real agent.
// Prints a table of findings; exits 1 when one of them is not as wanted.
import { parseArgs } from "node:util";
import type { Finding, Scenario, SoakContext } from "./scenario.ts";
import { bigFiles } from "./scenarios/big_files.ts";
import { burst } from "./scenarios/burst.ts";
import { crashes } from "./scenarios/crashes.ts";
import { descriptors } from "./scenarios/descriptors.ts";
import { followers } from "./scenarios/followers.ts";
import { fullDisk } from "./scenarios/full_disk.ts";
import { fuzz } from "./scenarios/fuzz.ts";
import { http2Guard } from "./scenarios/http2_guard.ts";
import { killStorms } from "./scenarios/kill_storms.ts";
import { kills } from "./scenarios/kills.ts";
import { manyProcesses } from "./scenarios/many_processes.ts";
import { mixedLoad } from "./scenarios/mixed_load.ts";
import { vanishing } from "./scenarios/vanishing.ts";

const SCENARIOS: readonly Scenario[] = [
  manyProcesses,
  crashes,
  burst,
  bigFiles,
  followers,
  killStorms,
  kills,
  descriptors,
  fullDisk,
  http2Guard,
  fuzz,
  vanishing,
  mixedLoad,
];

const { values } = parseArgs({
  args: Deno.args,
  options: {
    tenth: { type: "boolean", default: false },
    scale: { type: "string" },
    only: { type: "string", multiple: true },
    seed: { type: "string" },
  },
});

/** A scenario that fails and then cannot be ended throws both errors in one. */
function describe(error: unknown): string {
  if (!(error instanceof SuppressedError)) return Deno.inspect(error);
  return `${describe(error.suppressed)}\nand at the end: ${describe(error.error)}`;
}

const context: SoakContext = {
  scale: values.scale === undefined ? (values.tenth ? 0.1 : 1) : Number(values.scale),
  seed: values.seed === undefined ? Date.now() % 2 ** 31 : Number(values.seed),
  note: (text) => console.error(`  ${text}`),
};

console.log(`soak: scale ${context.scale}, seed ${context.seed}`);
let failed = 0;
let passed = 0;
console.log("| scenario | what | measured | wanted | |\n| --- | --- | --- | --- | --- |");
for (const scenario of SCENARIOS) {
  if (values.only !== undefined && !values.only.includes(scenario.name)) continue;
  let findings: readonly Finding[];
  try {
    findings = await scenario.run(context);
  } catch (error) {
    console.error(describe(error));
    findings = [{ what: "ran to its end", measured: String(error), wanted: "yes", ok: false }];
  }
  for (const { what, measured, wanted, ok } of findings) {
    if (ok) passed++;
    else failed++;
    console.log(
      `| ${scenario.name} | ${what} | ${measured} | ${wanted} | ${ok ? "ok" : "FAILED"} |`,
    );
  }
}
console.log(`soak: ${passed} as wanted, ${failed} not`);
Deno.exit(failed === 0 && passed > 0 ? 0 : 1);
