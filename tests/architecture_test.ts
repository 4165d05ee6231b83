// The import rules of src/README.md, checked over the real module graph (`deno info --json`).
import { assert, assertEquals } from "@std/assert";

const ROOT = new URL("../", import.meta.url);

/** Which rooms each room may import, beside itself and the leaves. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  std: [],
  spool: [],
  process: ["spool"],
  workspace: [],
  wire: ["gen"],
  rpc: ["process", "workspace", "wire", "gen"],
  client: ["wire", "gen"],
  cli: ["client"],
};

/** Files directly in src/ that every room may import and that import nothing of ours. */
const LEAVES = ["buffer_garbage.ts", "errors.ts", "clock.ts", "log.ts", "limits.ts", "version.ts"];

/** Rooms that may know gRPC. */
const GRPC_ROOMS = ["wire", "rpc", "client"];

interface Module {
  readonly specifier: string;
  readonly dependencies?: readonly {
    readonly specifier: string;
    readonly code?: { readonly specifier?: string };
    readonly type?: { readonly specifier?: string };
  }[];
}

async function moduleGraph(entry: string): Promise<readonly Module[]> {
  const { stdout, success } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", entry],
    cwd: ROOT.pathname,
    stderr: "null",
  }).output();
  assert(success, `deno info ${entry}`);
  return JSON.parse(new TextDecoder().decode(stdout)).modules;
}

/** "process" for src/process/x.ts, "src/errors.ts" for a file directly in src/, "gen" for gen/. */
function roomOf(specifier: string): string | undefined {
  if (!specifier.startsWith(ROOT.href)) return undefined;
  const path = specifier.slice(ROOT.href.length);
  if (path.startsWith("gen/")) return "gen";
  return /^src\/([^/]+)\//.exec(path)?.[1] ?? path;
}

function* imports(modules: readonly Module[]) {
  for (const module of modules) {
    for (const dependency of module.dependencies ?? []) {
      const target = dependency.code?.specifier ?? dependency.type?.specifier ??
        dependency.specifier;
      yield { from: module.specifier, to: target };
    }
  }
}

const ENTRIES = ["src/main.ts", "src/agent.ts", "src/policy.ts", "src/cli.ts", "src/mod.ts"];

Deno.test("rooms import only what they may", async () => {
  const broken = new Set<string>();
  for (const entry of ENTRIES) {
    for (const { from, to } of imports(await moduleGraph(entry))) {
      const room = roomOf(from);
      const target = roomOf(to);
      if (room === undefined || target === undefined || room === target) continue;
      const isLeaf = LEAVES.some((leaf) => target === `src/${leaf}`);
      if (LEAVES.includes(room.replace("src/", "")) && target !== "deno.json") {
        broken.add(`${from} is a leaf and imports ${to}`);
      }
      if (room in ALLOWED && !isLeaf && !ALLOWED[room]!.includes(target)) {
        broken.add(`${from} imports ${to}`);
      }
    }
  }
  assertEquals([...broken], []);
});

Deno.test("gRPC stays in rpc/, wire/ and client/", async () => {
  const broken = new Set<string>();
  for (const entry of ENTRIES) {
    for (const { from, to } of imports(await moduleGraph(entry))) {
      const room = roomOf(from);
      if (room === undefined || !/@grpc\//.test(to)) continue;
      if (!GRPC_ROOMS.includes(room)) broken.add(`${from} imports ${to}`);
    }
  }
  assertEquals([...broken], []);
});

Deno.test("client and CLI reach nothing of the server", async () => {
  const SERVER_ONLY =
    /src\/(process|spool|workspace|rpc)\/|src\/wire\/(connection|server|call_gate)/;
  for (const entry of ["src/cli.ts", "src/mod.ts"]) {
    const reached = (await moduleGraph(entry)).map((module) => module.specifier)
      .filter((specifier) => specifier.startsWith(ROOT.href) && SERVER_ONLY.test(specifier));
    assertEquals(reached, [], entry);
  }
});

Deno.test("only the spawner, the kill helper and nothing else in the domain starts programs", async () => {
  const users: string[] = [];
  for (const entry of ["src/main.ts", "src/agent.ts"]) {
    for (const { specifier } of await moduleGraph(entry)) {
      if (!specifier.startsWith(ROOT.href + "src/")) continue;
      if ((await Deno.readTextFile(new URL(specifier))).includes("new Deno.Command(")) {
        users.push(specifier.slice(ROOT.href.length));
      }
    }
  }
  for (const user of new Set(users)) assert(user.startsWith("src/process/"), user);
});
