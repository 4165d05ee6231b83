// src/start.sh: which permissions and flags come out of which settings. A fake `deno` prints them.
import { assert, assertEquals } from "@std/assert";
import { createTempDir } from "../helpers/state_dir.ts";

const SCRIPT = new URL("../../src/start.sh", import.meta.url).pathname;

interface Started {
  readonly code: number;
  /** Words that the runtime was started with. */
  readonly args: readonly string[];
  readonly stderr: string;
  flag(name: string): string | undefined;
  /** The value behind `--name` among the agent's own flags. */
  value(name: string): string | undefined;
}

/** Runs the script in `dir` with a `deno` that prints its arguments, NUL-terminated. */
async function start(
  dir: string,
  args: string[],
  env: Record<string, string> = {},
): Promise<Started> {
  await Deno.mkdir(`${dir}/bin`, { recursive: true });
  await Deno.writeTextFile(`${dir}/bin/deno`, `#!/bin/sh\nprintf '%s\\0' "$@"\n`);
  await Deno.chmod(`${dir}/bin/deno`, 0o755);
  const output = await new Deno.Command("/bin/sh", {
    args: [SCRIPT, ...args],
    cwd: dir,
    clearEnv: true,
    env: { PATH: `${dir}/bin:/usr/bin:/bin`, TMPDIR: dir, ...env },
  }).output();
  const words = new TextDecoder().decode(output.stdout).split("\0").slice(0, -1);
  return {
    code: output.code,
    args: words,
    stderr: new TextDecoder().decode(output.stderr),
    flag: (name) => words.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1),
    value: (name) => words[words.indexOf(name) + 1],
  };
}

Deno.test("start.sh grants exactly the workspace, the state directory and the address", async () => {
  await using dir = await createTempDir();
  const { path } = dir;
  const run = await start(path, ["--state-dir", "state", "--workspace=ws", "--retain", "5"]);
  assertEquals(run.code, 0, run.stderr);
  assertEquals(run.flag("--allow-read"), `${path}/ws,${path}/state,/dev/urandom`);
  assertEquals(run.flag("--allow-write"), `${path}/ws,${path}/state`);
  assertEquals(run.flag("--allow-net"), "127.0.0.1:8080");
  assert(run.args.includes("--allow-run"));
  assert(run.args.includes("--no-prompt"));
  assert(!run.args.includes("-A") && !run.args.includes("--allow-all"));
  assertEquals(run.value("--workspace"), `${path}/ws`);
  assertEquals(run.value("--root"), `${path}/ws`);
  assertEquals(run.value("--state-dir"), `${path}/state`);
  assertEquals(run.value("--retain"), "5");
  assertEquals(run.args.filter((word) => word.startsWith("--workspace")).length, 1);
  assertEquals((await Deno.stat(`${path}/state`)).mode! & 0o777, 0o700);
  assertEquals(await Deno.readLink(`${path}/state/proc`), "/proc");
});

Deno.test("start.sh takes the same settings from variables, and flags win", async () => {
  await using dir = await createTempDir();
  const { path } = dir;
  const env = {
    ATEENV_WORKSPACE: "a",
    WORKSPACE: "b",
    ATEENV_STATE_DIR: "s",
    PORT: "8123",
    ATEENV_ALLOW_RUN: "sh,python3",
  };
  const run = await start(path, ["--workspace", "c"], env);
  assertEquals(run.value("--workspace"), `${path}/c`);
  assertEquals(run.flag("--allow-net"), "0.0.0.0:8123");
  assertEquals(run.flag("--allow-run"), "sh,python3");
  assertEquals((await start(path, [], env)).value("--workspace"), `${path}/a`);
  const other = await start(path, ["--allow-run", "git", "--listen", "127.0.0.1:9"], env);
  assertEquals(other.flag("--allow-run"), "git");
  assertEquals(other.flag("--allow-net"), "127.0.0.1:9");
});

Deno.test("start.sh --enable-process=false grants no run permission", async () => {
  await using dir = await createTempDir();
  const run = await start(dir.path, ["--state-dir", "s", "--enable-process=false"]);
  assert(!run.args.some((word) => word.startsWith("--allow-run")), run.args.join(" "));
});

Deno.test("start.sh --root / grants the whole file system", async () => {
  await using dir = await createTempDir();
  const run = await start(dir.path, ["--state-dir", "s", "--root", "/", "--workspace", "w"]);
  assertEquals(run.flag("--allow-read"), `/,${dir.path}/s,/dev/urandom`);
});

Deno.test("start.sh grants extra paths, a socket and secret files one by one", async () => {
  await using dir = await createTempDir();
  const { path } = dir;
  await Deno.mkdir(`${path}/data one`);
  await Deno.mkdir(`${path}/data2`);
  await Deno.writeTextFile(`${path}/token`, "secret");
  const run = await start(path, [
    ...["--state-dir", "s", "--workspace", "w", "--unix", "a.sock", "--token-file", "token"],
    ...["--read-path", "data one", "--read-path=data2"],
  ]);
  assertEquals(
    run.flag("--allow-read"),
    `${path}/w,${path}/s,/dev/urandom,${path}/data one,${path}/data2,${path}/a.sock,${path}/token`,
  );
  assertEquals(run.flag("--allow-write"), `${path}/w,${path}/s,${path}/a.sock`);
  assertEquals(run.flag("--allow-net"), `127.0.0.1:8080,unix:${path}/a.sock`);
  assert(run.args.includes("--allow-sys"));
  assertEquals(run.value("--token-file"), `${path}/token`);
  assert(!run.args.join(" ").includes("secret"));
});

Deno.test("start.sh hands on the absolute name that a linked workspace was given by", async () => {
  await using dir = await createTempDir();
  const { path } = dir;
  await Deno.mkdir(`${path}/real`);
  await Deno.symlink("real", `${path}/link`);
  const run = await start(path, ["--state-dir", "s", "--workspace", `${path}/link`]);
  assertEquals(run.value("--workspace"), `${path}/real`);
  assertEquals(run.value("--given-workspace"), `${path}/link`);
  const plain = await start(path, ["--state-dir", "s", "--workspace", `${path}/real`]);
  assert(!plain.args.includes("--given-workspace"));
});

Deno.test("start.sh hands its own mistakes to the agent, which adds those that it finds", async () => {
  await using dir = await createTempDir();
  const cases: [args: string[], part: string][] = [
    [["--workspace", "a,b"], "comma"],
    [["--state-dir", "s,t"], "comma"],
    [["--root", "missing"], "no such directory"],
    [["--token-file", "missing"], "no such file"],
    [["--read-path", "missing"], "no such directory"],
    [["--workspace", "a", "--workspace", "b"], "disagree"],
    [["--state-dir", "a", "--log-dir", "b"], "disagree"],
  ];
  for (const [args, part] of cases) {
    const run = await start(dir.path, ["--listen", "127.0.0.1:0", ...args]);
    assert(run.flag("--mistakes")?.includes(part), `${args.join(" ")}: ${run.args.join(" ")}`);
    // Nothing is granted to a run that can only report.
    assertEquals(run.flag("--allow-read"), undefined);
    assertEquals(run.flag("--allow-run"), undefined);
  }
});

Deno.test("start.sh makes no directory for an address that cannot be one", async () => {
  await using dir = await createTempDir();
  for (const listen of ["nowhere", "127.0.0.1:80811", "127.0.0.1:", "a b:80", "127.0.0.1:http"]) {
    const run = await start(dir.path, ["--listen", listen, "--state-dir", "s"]);
    assertEquals(run.value("--listen"), listen);
    assertEquals(run.flag("--allow-net"), undefined);
    assertEquals([...Deno.readDirSync(dir.path)].map((entry) => entry.name), ["bin"]);
  }
});

Deno.test("all mistakes are reported at once, those of start.sh and those of the agent", async () => {
  await using dir = await createTempDir();
  const { code, stderr } = await new Deno.Command("/bin/sh", {
    args: [
      SCRIPT,
      ...["--listen", "foo", "--max-processes", "x", "--bogus", "1", "--root", "/nonexistent"],
    ],
    cwd: dir.path,
    env: { ATEENVD_DENO: Deno.execPath(), ATEENV_LOG_LEVEL: "loud" },
  }).output();
  const text = new TextDecoder().decode(stderr);
  assertEquals(code, 2, text);
  for (
    const part of [
      "--root /nonexistent: no such directory",
      "--listen: want ADDR:PORT",
      "--max-processes: want a whole number",
      "--bogus: no such flag",
      "ATEENV_LOG_LEVEL: want",
    ]
  ) assert(text.includes(part), `${part} in ${text}`);
  assertEquals([...Deno.readDirSync(dir.path)], []);
});

Deno.test("start.sh hands on what it does not know, values with odd characters included", async () => {
  await using dir = await createTempDir();
  const odd = ["--bogus", "a b", "--auth=no'ne", "stray\nword", "--retain"];
  const run = await start(dir.path, ["--state-dir", "s", ...odd]);
  for (const word of odd) assert(run.args.includes(word), JSON.stringify(word));
});

Deno.test("start.sh lists the agent's own variables for removal, and no value", async () => {
  await using dir = await createTempDir();
  const run = await start(dir.path, ["--state-dir", "s"], {
    ATEENV_SOMETHING: "x",
    DENO_DIR: "y",
    npm_config_cache: "z",
    OTHER: "ATEENV_NOT=1",
  });
  const names = run.value("--strip-env")!.split(":").filter((name) => name !== "").sort();
  assertEquals(names, [
    "ATEENV_SOMETHING",
    "DENO_DIR",
    "DENO_NO_UPDATE_CHECK",
    "npm_config_cache",
  ]);
});

Deno.test("start.sh makes a temporary state directory for port 0", async () => {
  await using dir = await createTempDir();
  const run = await start(dir.path, ["--listen=127.0.0.1:0"]);
  assert(run.value("--state-dir")!.startsWith(`${dir.path}/ateenvd.`), run.value("--state-dir"));
  assert(run.args.includes("--state-temporary"));
});

Deno.test("start.sh --help and --version touch nothing and need no permission", async () => {
  await using dir = await createTempDir();
  for (const word of ["--help", "--version", "-h"]) {
    const run = await start(dir.path, [word, "--state-dir", "s"]);
    assertEquals(run.args.filter((arg) => arg.startsWith("--allow")).length, 0);
    assert(run.args.includes(word));
    assertEquals([...Deno.readDirSync(dir.path)].map((entry) => entry.name), ["bin"]);
  }
});
