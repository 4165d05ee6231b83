// Processes under scoped --allow-run, without descriptors, and without processes to be had.
import { assert, assertEquals } from "@std/assert";
import { createStateDir } from "../../helpers/state_dir.ts";

const HELPERS = JSON.stringify(import.meta.resolve("../../helpers/process_table.ts"));
const ROOT = new URL("../../../", import.meta.url).pathname;

interface Outcome {
  readonly lines: string[];
  readonly stderr: string;
}

/** Runs `code` with a table in a process of its own, as the production flags would have it. */
async function runScoped(
  run: string | undefined,
  code: string,
  wrap: readonly string[] = [],
): Promise<Outcome> {
  await using state = await createStateDir();
  const program =
    `import { NEVER, openTestTable, readOutputs, readUntil, startShell, waitFinal } from ${HELPERS};
    const test = await openTestTable({}, ${JSON.stringify(state.path)});
    const { table } = test;
    // As main has it: where nobody listens, the runtime makes its pipe for signals when it needs it, and panics
    // when there is no descriptor left.
    Deno.addSignalListener("SIGTERM", () => {});
    const start = (command, env = {}) => table.start({ command, cwd: "", env }, NEVER);
    const tell = (error) => console.log(error.kind + ": " + error.message);
    try { ${code} } finally { await table.shutdown(0); }
    Deno.exit(0);`;
  const file = `${state.path}/program.ts`;
  await Deno.writeTextFile(file, program);
  const [command, ...args] = [
    ...wrap,
    Deno.execPath(),
    "run",
    "--no-prompt",
    "--no-check",
    `--config=${ROOT}deno.json`,
    `--allow-read=${state.path},/dev/urandom`,
    `--allow-write=${state.path}`,
    run === undefined ? "--allow-run" : `--allow-run=${run}`,
    file,
  ];
  const { stdout, stderr } = await new Deno.Command(command!, {
    args,
    // As start.sh has it: the runtime would look for updates, whatever descriptors are left.
    env: { DENO_NO_UPDATE_CHECK: "1" },
  }).output();
  const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { lines: decode(stdout).trim().split("\n"), stderr: decode(stderr) };
}

const TREE = `
  const { processId } = await startShell(table, "(setsid sh -c 'echo $$; exec sleep 600' &); sleep 600 & echo $!; echo $$; wait");
  const pids = (await readUntil(table, processId, (text) => text.split("\\n").length > 3)).trim();
  console.log(table.killReach, await table.kill(processId, NEVER), pids.replaceAll("\\n", " "));`;

/** Pids of the tree that are alive; they are killed then. */
async function takeAlive(line: string): Promise<number> {
  const pids = line.split(" ").slice(2).map(Number);
  const { stdout } = await new Deno.Command("sh", {
    args: [
      "-c",
      `for pid in "$@"; do grep -qs ") [SRT] " /proc/$pid/stat && kill -KILL $pid && echo $pid; done; true`,
      "sh",
      ...pids.map(String),
    ],
  }).output();
  return new TextDecoder().decode(stdout).split("\n").length - 1;
}

for (const run of [undefined, "sh,sleep"]) {
  Deno.test(`a kill reaches the whole tree with --allow-run=${run ?? "(all)"}`, async () => {
    const { lines, stderr } = await runScoped(run, TREE);
    assert(lines[0]?.startsWith("tree 137 "), stderr);
    assertEquals(await takeAlive(lines[0]!), 0);
  });
}

Deno.test("without sh in the list, a kill reaches the group by kill, else the child", async () => {
  for (const [run, reach] of [["dash,bash,kill", "group"], ["dash,bash", "child"]] as const) {
    const shell = (await Deno.stat("/bin/dash").catch(() => undefined)) ? "dash" : "bash";
    const { lines, stderr } = await runScoped(
      run,
      TREE.replace("startShell(table, ", `start(["${shell}", "-c", `).replace(
        'wait");',
        'wait"]);',
      ) +
        'console.log(test.lines.filter(({ level }) => level === "warn").length);',
    );
    assert(lines[0]?.startsWith(`${reach} 137 `), stderr);
    assertEquals(lines[1], "1");
    const left = await takeAlive(lines[0]!);
    assertEquals(left, reach === "group" ? 1 : 2);
  }
});

Deno.test("what the policy refuses is named: the program, or the variable", async () => {
  const { lines } = await runScoped(
    "sh",
    `await start(["sleep", "1"]).catch(tell);
     await start(["/bin/no-such-program"]).catch(tell);
     await start(["sh", "-c", "true"], { LD_PRELOAD: "/x.so" }).catch(tell);
     await table.start({ command: ["sh", "-c", "true"], cwd: "/no/such", env: {} }, NEVER).catch(tell);
     const { processId } = await start(["no-such-program"]);
     console.log((await waitFinal(table, processId)).exitCode);`,
  );
  const refusal = " is not permitted by the agent's policy (--allow-run)";
  assertEquals(lines, [
    `permission-denied: program "sleep"${refusal}`,
    `permission-denied: program "/bin/no-such-program"${refusal}`,
    `permission-denied: environment variable LD_PRELOAD${refusal}`,
    'invalid-argument: cwd "/no/such" does not exist',
    "127",
  ]);
});

Deno.test("out of descriptors: RESOURCE_EXHAUSTED, a kill still works, and then starts do", async () => {
  const { lines, stderr } = await runScoped(
    undefined,
    `const started = [];
     try {
       while (true) started.push(await startShell(table, "(setsid sleep 600 &); sleep 600"));
     } catch (error) { tell(error); }
     const held = [];
     try { while (true) held.push(Deno.openSync("/dev/urandom")); } catch { /* none left */ }
     const codes = await Promise.all(started.map(({ processId }) => table.kill(processId, NEVER)));
     console.log(started.length > 3, codes.every((code) => code === 137));
     for (const file of held) file.close();
     const { processId } = await startShell(table, "exit 9");
     console.log((await waitFinal(table, processId)).exitCode);`,
    ["sh", "-c", 'ulimit -n 96; exec "$@"', "sh"],
  );
  assertEquals(lines.slice(1), ["true true", "9"], stderr);
  assert(/^resource-exhausted: .*: EMFILE$/.test(lines[0]!), lines[0]);
});
