// The examples run as they stand, each as a program of its own.
import { assert, assertEquals } from "@std/assert";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { createTempDir } from "../helpers/state_dir.ts";

async function runExample(name: string, flags: string[], address: string, args: string[] = []) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-prompt",
      "--allow-net",
      "--allow-env",
      ...flags,
      new URL(name, import.meta.url).pathname,
      ...args,
    ],
    env: { ATEENV_ADDRESS: address, NO_COLOR: "1" },
    stdin: "null",
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, stdout: text(stdout), stderr: text(stderr) };
}

Deno.test("quickstart.ts", async () => {
  await using agent = await startAgentProcess();
  assertEquals(await runExample("quickstart.ts", [], agent.address), {
    code: 0,
    stdout: "exit code 3: hello from Linux\n" +
      "step 1\nstep 2\nstep 3\n" +
      "finished: completed\n" +
      "greeting: hello from Linux\n",
    stderr: "",
  });
});

Deno.test("agent_loop.ts", async () => {
  await using agent = await startAgentProcess();
  assertEquals(await runExample("agent_loop.ts", [], agent.address), {
    code: 0,
    stdout: "round 1: add 2 3: expected 5, not -1\nround 2: passed\n",
    stderr: "",
  });
});

Deno.test("upload_and_build.ts", async () => {
  await using agent = await startAgentProcess();
  await using repository = await createTempDir();
  await Deno.writeTextFile(
    `${repository.path}/build.sh`,
    "echo building, CI=$CI; echo a warning >&2; mkdir out; echo built > out/artifact.txt\n",
  );
  assertEquals(
    await runExample("upload_and_build.ts", ["--allow-run=tar"], agent.address, [repository.path]),
    {
      code: 0,
      stdout: "uploaded the repository\nbuilding, CI=1\n" +
        "build finished with exit code 0\nartifact: built\n",
      stderr: "a warning\n",
    },
  );
});

Deno.test("the examples in the docstrings run", async () => {
  await using agent = await startAgentProcess();
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "test",
      "--doc",
      "--no-prompt",
      "--allow-net",
      "--allow-env",
      "src/mod.ts",
      "src/client",
    ],
    cwd: new URL("../../", import.meta.url).pathname,
    env: { ATEENV_ADDRESS: agent.address, NO_COLOR: "1" },
    stdin: "null",
  }).output();
  const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  assertEquals(code, 0, text);
  const passed = Number(/(\d+) passed/.exec(text)?.[1]);
  assert(passed >= 8, text);
});
