// src/ateenv.sh: the CLI from any directory, through links and through the task, with its permissions.
// Must not import the CLI's own code: what it tests is the program.
import { assert, assertEquals } from "@std/assert";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { CLI_LAUNCHER } from "../helpers/cli_process.ts";
import { createTempDir } from "../helpers/state_dir.ts";

const CONFIG = new URL("../../deno.json", import.meta.url).pathname;

async function run(program: string, args: string[], cwd: string, env: Record<string, string>) {
  // `deno task` keeps the INIT_CWD of a task around it, such as the one that runs these tests.
  const { INIT_CWD: _, ...inherited } = Deno.env.toObject();
  const { code, stdout, stderr } = await new Deno.Command(program, {
    args,
    cwd,
    clearEnv: true,
    env: { ...inherited, ...env },
    stdin: "null",
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, stdout: text(stdout), stderr: text(stderr) };
}

Deno.test("the launcher works from any directory, and local paths are meant from there", async (t) => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  const here = `${dir.path}/here it is`;
  await Deno.mkdir(here);
  await Deno.mkdir(`${dir.path}/bin`);
  await Deno.symlink(CLI_LAUNCHER, `${dir.path}/bin/absolute`);
  await Deno.symlink("../bin/absolute", `${dir.path}/bin/ateenv`);
  await Deno.writeTextFile(`${here}/file`, "from here");
  const env = { ATEENV_ADDRESS: agent.address, ATEENVD_DENO: Deno.execPath() };
  const words = (to: string) => ["put", "file", `:${to}`];
  const ways: [string, string, string[]][] = [
    ["through links", `${dir.path}/bin/ateenv`, []],
    ["with sh", "sh", ["../bin/ateenv"]],
    ["through the task", Deno.execPath(), ["task", "--config", CONFIG, "-q", "ateenv"]],
  ];
  for (const [name, program, first] of ways) {
    await t.step(name, async () => {
      const result = await run(program, [...first, ...words(name)], here, env);
      assertEquals(result, { code: 0, stdout: "", stderr: "" });
      assertEquals(await Deno.readTextFile(`${agent.workspace}/${name}`), "from here");
    });
  }
});

Deno.test("the launcher takes Deno from npm where none is on PATH", async () => {
  await using dir = await createTempDir();
  await Deno.writeTextFile(`${dir.path}/npx`, '#!/bin/sh\nprintf "%s\\n" "$@"\n');
  await Deno.chmod(`${dir.path}/npx`, 0o755);
  for (const tool of ["sh", "dirname", "readlink"]) {
    const { stdout } = await run("sh", ["-c", `command -v ${tool}`], dir.path, {});
    await Deno.symlink(stdout.trim(), `${dir.path}/${tool}`);
  }
  const { code, stdout } = await run(CLI_LAUNCHER, ["run", "--", "a b"], dir.path, {
    PATH: dir.path,
  });
  const words = stdout.trimEnd().split("\n");
  assertEquals(code, 0);
  assertEquals(words.slice(0, 3), ["-y", "deno@2.9.6", "run"]);
  assertEquals(words.slice(-3), ["run", "--", "a b"]);
});

Deno.test("the launcher tells its permissions, which no compiled CLI may exceed", async () => {
  const { stdout } = await run("sh", [CLI_LAUNCHER], "/", { ATEENVD_COMPILE: "1" });
  const flags = stdout.trim().split(" ");
  assert(flags.length >= 4 && flags.every((flag) => /^--allow-[a-z]+(=[A-Z_,]+)?$/.test(flag)));
  assert(!flags.includes("--allow-env") && !/--allow-(run|ffi|sys|all)/.test(stdout), stdout);
});
