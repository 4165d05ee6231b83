// A process that does nothing but exchange components with symlinks, against the production permissions.
// The regression test of what resolve.ts and pinned_directory.ts lean on.
import { assert, assertEquals } from "@std/assert";
import { listTree, SECRET } from "./workspace_sandbox.ts";
import { createStateDir, createTempDir } from "../helpers/state_dir.ts";

const DRIVER = new URL("../fixtures/programs/swap_driver.ts", import.meta.url).pathname;
const RACER = new URL("../fixtures/programs/swap_racer.ts", import.meta.url).pathname;
const PYTHON_RACER = new URL("../fixtures/programs/swap_racer.py", import.meta.url).pathname;
const RACE_MS = 10_000;
const SHORT_RACE_MS = 4_000;

interface Racer extends AsyncDisposable {
  readonly works: boolean;
}

/** Starts a racer and waits for its first round. */
async function startRacer(command: string, args: string[]): Promise<Racer> {
  let child: Deno.ChildProcess;
  try {
    child = new Deno.Command(command, { args, stdout: "piped", stderr: "null" }).spawn();
  } catch {
    return { works: false, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  const reader = child.stdout.getReader();
  const { done } = await reader.read();
  return {
    works: !done,
    async [Symbol.asyncDispose]() {
      try {
        child.kill("SIGKILL");
      } catch {
        // It has ended by itself.
      }
      await reader.cancel();
      await child.status;
    },
  };
}

interface Counts {
  [outcome: string]: number;
}

async function raceAgainst(
  startOn: (pairs: string[]) => Promise<Racer>,
  permissions: (root: string, state: string) => string[],
  durationMs: number,
): Promise<{ works: boolean; counts: Counts[] }> {
  await using state = await createStateDir();
  await using base = await createTempDir();
  const root = `${base.path}/ws`;
  const outside = `${base.path}/outside`;
  await Deno.mkdir(`${root}/dir`, { recursive: true });
  await Deno.mkdir(`${outside}/sub`, { recursive: true });
  await Deno.chmod(`${outside}/sub`, 0o700);
  await Deno.writeTextFile(`${outside}/secret`, SECRET);
  await Deno.writeTextFile(`${root}/dir/secret`, "inside");
  await Deno.symlink(outside, `${root}/dir-link`);
  await Deno.writeTextFile(`${root}/file`, "inside");
  await Deno.symlink(`${outside}/secret`, `${root}/file-link`);
  await Deno.writeTextFile(`${root}/plain`, "inside");
  await new Deno.Command("mkfifo", { args: [`${root}/fifo`] }).output();
  await using racer = await startOn([
    `${root}/dir`,
    `${root}/dir-link`,
    `${root}/file`,
    `${root}/file-link`,
    `${root}/plain`,
    `${root}/fifo`,
  ]);
  if (!racer.works) return { works: false, counts: [] };
  const job = {
    options: {
      root,
      workspace: root,
      readPaths: [],
      forbidden: [],
      stateDir: state.path,
      fsync: false,
    },
    race: {
      durationMs,
      steps: [
        { op: "read", path: "dir/secret" },
        { op: "read", path: "file" },
        { op: "read", path: "plain" },
        { op: "write", path: "dir/written", text: "inside" },
        { op: "write", path: "dir/new-ROUND/made", text: "inside" },
        { op: "write", path: "dir/sub/made", text: "inside" },
        { op: "write", path: "file", text: "inside" },
      ],
    },
  };
  const { stdout, stderr, success } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-prompt",
      ...permissions(root, state.path),
      DRIVER,
      JSON.stringify(job),
    ],
  }).output();
  assert(success, new TextDecoder().decode(stderr));
  const counts: Counts[] = JSON.parse(new TextDecoder().decode(stdout));
  assertEquals(await listTree(outside), ["secret", "sub"], "something was made outside");
  assertEquals((await Deno.stat(`${outside}/sub`)).mode! & 0o777, 0o700);
  assertEquals(await Deno.readTextFile(`${outside}/secret`), SECRET);
  assertEquals(await listTree(`${state.path}/tmp`), [], "temporary files were left");
  return { works: true, counts };
}

/** The outcomes of a race: content from inside, or an error that says what was in the way. */
function assertOutcomes(counts: Counts[], allowNotFound: boolean): void {
  const text = JSON.stringify(counts, null, 2);
  for (const count of counts) {
    for (const outcome of Object.keys(count)) {
      const isFine = outcome === "ok:inside" || outcome === "ok:N" ||
        outcome.startsWith("permission-denied:access denied") ||
        outcome.startsWith("failed-precondition:") ||
        (allowNotFound && outcome.startsWith("not-found:"));
      assert(isFine, `${outcome}\n${text}`);
    }
  }
  // Which call gets through how often is up to the scheduler.
  const ok = counts.some((count) => (count["ok:inside"] ?? 0) + (count["ok:N"] ?? 0) > 0);
  assert(ok, `no call ever succeeded: the race proves nothing\n${text}`);
  const refused = counts.some((count) =>
    Object.keys(count).some((outcome) => outcome.startsWith("permission-denied:access denied"))
  );
  assert(refused, `no call ever met the link\n${text}`);
}

const scoped = (root: string, state: string) => [
  `--allow-read=${root},${state}`,
  `--allow-write=${root},${state}`,
  "--allow-env",
];

Deno.test("renames in a loop: nothing comes out, nothing goes in (scoped permissions)", async () => {
  const { counts } = await raceAgainst(
    (pairs) => startRacer(Deno.execPath(), ["run", "-A", "--no-check", RACER, ...pairs]),
    scoped,
    SHORT_RACE_MS,
  );
  assertOutcomes(counts, true);
});

for (
  const [name, permissions, durationMs] of [
    ["scoped permissions", scoped, RACE_MS],
    ["all permissions", () => ["-A"], SHORT_RACE_MS],
  ] as const
) {
  Deno.test(`RENAME_EXCHANGE in a loop: nothing comes out, nothing goes in (${name})`, async () => {
    const { works, counts } = await raceAgainst(
      (pairs) => startRacer("python3", [PYTHON_RACER, ...pairs]),
      permissions,
      durationMs,
    );
    if (!works) return console.warn("SKIPPED: python3 with renameat2 is not available");
    assertOutcomes(counts, false);
  });
}
