// --run-as: who the children are, what they cannot reach, and when it is refused.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { createDenoSpawner } from "../../../src/process/deno_spawner.ts";
import { requireRunAs } from "../../../src/process/run_as.ts";
import {
  isAlive,
  NEVER,
  openTestTable,
  readOutputs,
  readUntil,
  startShell,
  waitFinal,
} from "../../helpers/process_table.ts";
import { createTempDir } from "../../helpers/state_dir.ts";

const ignore = Deno.uid() !== 0;
if (ignore) console.warn("--run-as is not tested here: it takes root");

const RUN_AS = { uid: 54321, gid: 54322 };

async function openAsOther() {
  const parts = new AsyncDisposableStack();
  const workspace = parts.use(await createTempDir()).path;
  await Deno.chmod(workspace, 0o755);
  const test = parts.use(
    await openTestTable({ spawner: createDenoSpawner(RUN_AS), workspace }),
  );
  const output = async (script: string) => {
    const { processId } = await startShell(test.table, script);
    const { stdout } = await readOutputs(test.table, processId);
    return new TextDecoder().decode(stdout);
  };
  return { ...test, workspace, output, [Symbol.asyncDispose]: () => parts.disposeAsync() };
}

Deno.test({
  name: "--run-as: that uid and gid, no other groups, no capability, the agent's environment",
  ignore,
  async fn() {
    await using test = await openAsOther();
    const status = await test.output("cat /proc/self/status");
    assert(/^Uid:\t54321\t54321\t54321\t54321$/m.test(status), status);
    assert(/^Gid:\t54322\t54322\t54322\t54322$/m.test(status), status);
    assert(/^Groups:\s*$/m.test(status), status);
    assert(/^CapEff:\t0+$/m.test(status), status);
    // HOME and the like stay the agent's: who wants others says so in the request.
    assertEquals(await test.output('echo "$HOME"'), `${Deno.env.get("HOME") ?? ""}\n`);
  },
});

Deno.test({
  name: "--run-as: children reach neither the state directory nor a file of the agent's",
  ignore,
  async fn() {
    await using test = await openAsOther();
    const token = `${test.workspace}/token`;
    await Deno.writeTextFile(token, "secret", { mode: 0o600 });
    const script = `cat ${token}; ls ${test.statePath}; echo x >${test.statePath}/format;
      ls /proc/${Deno.pid}/fd; cat /proc/${Deno.pid}/environ; kill -TERM ${Deno.pid}; echo end`;
    assertEquals(await test.output(script), "end\n");
  },
});

Deno.test({
  name: "--run-as: a kill reaches the tree, setsid'd and double-forked processes too",
  ignore,
  async fn() {
    await using test = await openAsOther();
    const { table } = test;
    const { processId } = await startShell(
      table,
      "(setsid sh -c 'echo $$; exec sleep 600' &); sleep 600 & echo $!; echo $$; wait",
    );
    const text = await readUntil(table, processId, (text) => text.split("\n").length > 3);
    assertEquals(await table.kill(processId, NEVER), 137);
    for (const pid of text.trim().split("\n")) assert(!await isAlive(Number(pid)), pid);
  },
});

Deno.test({
  name: "--run-as: a program or a cwd that the other user may not use is judged as such",
  ignore,
  async fn() {
    await using test = await openAsOther();
    const { table, workspace } = test;
    await Deno.writeTextFile(`${workspace}/mine`, "#!/bin/sh\n", { mode: 0o700 });
    const { processId } = await table.start({ command: ["./mine"], cwd: "", env: {} }, NEVER);
    assertEquals((await waitFinal(table, processId)).exitCode, 126);
    const start = () => table.start({ command: ["true"], cwd: test.statePath, env: {} }, NEVER);
    const error = await assertRejects(start, AgentError);
    assertEquals(error.kind, "permission-denied");
    assert(error.message.includes("cannot be entered"), error.message);
  },
});

Deno.test({
  name: "--run-as is tried at the start, with any policy, and no program is run for it",
  ignore,
  async fn() {
    await using directory = await createTempDir();
    await Deno.chmod(directory.path, 0o777);
    const program = `${directory.path}/program`;
    await Deno.writeTextFile(program, `#!/bin/sh\necho >${directory.path}/ran\n`, { mode: 0o755 });
    await Deno.chmod(program, 0o755);
    for (const programs of [undefined, ["sh"], [program], []]) {
      await requireRunAs(createDenoSpawner(RUN_AS), RUN_AS, programs);
    }
    assertEquals(await Deno.stat(`${directory.path}/ran`).catch(() => undefined), undefined);
  },
});

Deno.test({
  name:
    "--run-as without CAP_SETUID, CAP_SETGID or CAP_KILL is refused at the start, which says so",
  ignore,
  async fn() {
    const modules = ["deno_spawner", "run_as"].map((name) =>
      JSON.stringify(import.meta.resolve(`../../../src/process/${name}.ts`))
    );
    const code = `import { createDenoSpawner } from ${modules[0]};
      import { requireRunAs } from ${modules[1]};
      const runAs = { uid: 54321, gid: 54322 };
      for (const programs of [undefined, ["true"]]) {
        await requireRunAs(createDenoSpawner(runAs), runAs, programs)
          .then(() => console.log("taken"), (error) => console.log(error.kind + ": " + error.message));
      }`;
    const refusal = "failed-precondition: cannot use --run-as 54321:54322: it takes";
    const notBoth = `${refusal} CAP_SETUID and CAP_SETGID, and the agent does not have them\n`;
    const noKill = `${refusal} CAP_KILL to end them, and the agent does not have it\n`;
    for (
      const [missing, expected] of [
        ["setuid", notBoth + notBoth],
        ["setgid", notBoth + notBoth],
        ["kill", noKill + noKill],
      ] as const
    ) {
      const { stdout } = await new Deno.Command("setpriv", {
        args: [`--bounding-set=-${missing}`, Deno.execPath(), "eval", code],
      }).output();
      assertEquals(new TextDecoder().decode(stdout), expected);
    }
  },
});
