// `deno task compile`: what is embedded and with which permissions, for each policy and target. The executable
// runs only where DENORT_BIN names a real denort; elsewhere the same bundle runs under the same permissions.
import { assert, assertEquals } from "@std/assert";
import { createTempDir } from "../helpers/state_dir.ts";
import { readLines, run } from "./container.ts";

const PROJECT = new URL("../../", import.meta.url).pathname;
const DENO = Deno.execPath();
const DENORT = Deno.env.get("DENORT_BIN") ?? DENO;
// The plain runtime does for the compile step, but runs as itself.
const isRealDenort = !(await run([DENORT, "--version"])).stdout.startsWith("deno ");

type Variables = Readonly<Record<string, string>>;

async function compile(out: string, variables: Variables = {}) {
  const { code, stdout, stderr } = await new Deno.Command("sh", {
    args: [`${PROJECT}.ci/compile.sh`],
    cwd: "/",
    env: {
      DENORT_BIN: DENORT,
      ATEENV_COMPILE_OUT: out,
      ATEENV_COMPILE_COMMIT: "0123456789ab",
      PATH: `${DENO.slice(0, DENO.lastIndexOf("/"))}:${Deno.env.get("PATH")}`,
      ...variables,
    },
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

interface Embedded {
  readonly permissions: Readonly<Record<string, readonly string[] | null | boolean>>;
  readonly entrypoint_key: string;
  readonly app_version: string;
  /** All files that are embedded. */
  readonly files: readonly string[];
}

/** What `deno compile` has put behind the runtime. */
async function readEmbedded(path: string): Promise<Embedded> {
  const found = await run([
    ...["grep", "-a", "-o", '{"argv":.*"app_version":"[^"]*"}', path],
  ]);
  const metadata = JSON.parse(found.stdout.trim());
  const tree = await run(["grep", "-a", "-o", '\\[{"\\(File\\|Directory\\)":{"n":.*', path]);
  const names = [...tree.stdout.split("\0")[0]!.matchAll(/"n":"([^"]*)"/g)].map(([, name]) =>
    name!
  );
  return { ...metadata, files: names };
}

/** Permissions that are there, and only those. */
function granted({ permissions }: Embedded): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(permissions).filter(([name, value]) =>
      value !== null && name !== "allow_import"
    ),
  );
}

/** The flags of a start with the same settings, by start.sh itself. */
async function flagsOfStart(args: readonly string[], dir: string) {
  const printer = `${dir}/print`;
  await Deno.writeTextFile(printer, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n", { mode: 0o755 });
  const { stdout } = await new Deno.Command("sh", {
    args: [`${PROJECT}src/start.sh`, ...args],
    env: { ATEENVD_DENO: printer },
  }).output();
  const words = new TextDecoder().decode(stdout).split("\n");
  return (name: string) =>
    words.find((word) => word.startsWith(`--allow-${name}=`))?.split("=")[1]?.split(",");
}

Deno.test("compile: the default policy, with the permissions of a start and nothing of this machine", async () => {
  await using out = await createTempDir();
  const dirs = [`${out.path}/ws`, `${out.path}/state`] as const;
  const { code, stdout, stderr } = await compile(out.path, {
    ATEENV_COMPILE_WORKSPACE: dirs[0],
    ATEENV_COMPILE_STATE_DIR: dirs[1],
  });
  assertEquals(code, 0, stderr);
  console.log(stdout.replaceAll(out.path, "dist").trimEnd());
  const embedded = await readEmbedded(`${out.path}/ateenvd`);
  const flags = await flagsOfStart(["--workspace", dirs[0], "--state-dir", dirs[1]], out.path);
  assertEquals(granted(embedded), {
    allow_env: flags("env"),
    allow_net: flags("net"),
    allow_read: flags("read"),
    allow_write: flags("write"),
    allow_run: [],
    prompt: false,
  });
  assertEquals(embedded.app_version.split("+")[1], "0123456789ab");
  assertEquals(embedded.files, [embedded.entrypoint_key]);
  for (const file of ["ateenvd", "ateenv"]) {
    const traces = await run(["grep", "-a", "-c", "-F", PROJECT, `${out.path}/${file}`]);
    assertEquals(traces.stdout, "0\n", `${file} names the directory it was built in`);
  }
  assertEquals(
    [...Deno.readDirSync(out.path)].map(({ name }) => name).filter((name) =>
      /^(atee|start)/.test(name)
    )
      .sort(),
    ["ateenv", "ateenvd", "ateenvd.baked", "start.sh"],
  );
});

Deno.test("compile: the policies build and files, and what contradicts itself", async () => {
  await using out = await createTempDir();
  const build = { ATEENV_COMPILE_POLICY: "build", ATEENV_COMPILE_ALLOW_RUN: "sh,cat,grep,make" };
  assertEquals((await compile(out.path, build)).code, 0);
  assertEquals((await readEmbedded(`${out.path}/ateenvd`)).permissions["allow_run"], [
    "sh",
    "cat",
    "grep",
    "make",
  ]);
  assertEquals((await compile(out.path, { ATEENV_COMPILE_POLICY: "files" })).code, 0);
  const files = await readEmbedded(`${out.path}/ateenvd`);
  assertEquals(files.permissions["allow_run"], null);
  assertEquals(files.permissions["allow_read"], ["/workspace", "/var/lib/ateenv", "/dev/urandom"]);
  for (
    const wrong of [
      { ATEENV_COMPILE_POLICY: "other" },
      { ATEENV_COMPILE_POLICY: "build" },
      { ATEENV_COMPILE_ALLOW_RUN: "sh" },
      { ATEENV_COMPILE_TARGET: "mips" },
      { ATEENV_COMPILE_WORKSPACE: "relative" },
    ] as Variables[]
  ) {
    assertEquals((await compile(out.path, wrong)).code, 2, JSON.stringify(wrong));
  }
});

Deno.test("compile: both targets", async () => {
  await using out = await createTempDir();
  const { code, stderr } = await compile(out.path, { ATEENV_COMPILE_TARGET: "both" });
  assertEquals(code, 0, stderr);
  for (const target of ["linux-x64", "linux-arm64"]) {
    const { entrypoint_key, files } = await readEmbedded(`${out.path}/${target}/ateenvd`);
    assertEquals(files, [entrypoint_key]);
  }
});

/** Starts `dir`/start.sh, takes it through a start and a stop. */
async function startAndStop(dir: string, args: readonly string[], env: Variables = {}) {
  const child = new Deno.Command("sh", {
    args: [`${dir}/start.sh`, ...args],
    env,
    stdout: "null",
    stderr: "piped",
  }).spawn();
  const lines = readLines(child.stderr);
  const started = await lines.find((line) => line.includes('"ateenvd started"'));
  if (started !== undefined) child.kill("SIGTERM");
  const { code } = await child.status;
  return { code, started, log: await lines.all };
}

async function exerciseCompiled(isExecutable: boolean): Promise<void> {
  await using out = await createTempDir();
  const { path } = out;
  const variables = {
    ATEENV_COMPILE_WORKSPACE: `${path}/ws`,
    ATEENV_COMPILE_STATE_DIR: `${path}/state`,
    ATEENV_COMPILE_LISTEN: "127.0.0.1:0",
  };
  assertEquals((await compile(path, variables)).code, 0);
  if (!isExecutable) await standIn(path);

  const { code, started, log } = await startAndStop(path, ["--state-dir", `${path}/state`]);
  assertEquals(code, 0, log);
  assert(started!.includes('"killReach":"tree"'), started);
  assertEquals(JSON.parse(started!).workspace, `${path}/ws`);

  const refused = await startAndStop(path, ["--workspace", `${path}/other`]);
  assertEquals(refused.code, 2, refused.log);
  assert(refused.log.includes("compiled agent has no permission"), refused.log);
  const elsewhere = await startAndStop(path, ["--state-dir", `${path}/state`], { PORT: "8081" });
  assertEquals(elsewhere.code, 2, elsewhere.log);
}

/** In the place of the executable: the same bundle, under the permissions that the executable carries. */
async function standIn(dir: string): Promise<void> {
  const { permissions, app_version } = await readEmbedded(`${dir}/ateenvd`);
  const flags = Object.entries(permissions)
    .filter(([name, value]) =>
      name.startsWith("allow_") && name !== "allow_import" && value !== null
    )
    .map(([name, value]) => {
      const list = (value as readonly string[]).join(",");
      return `'--${name.replace("_", "-")}${list === "" ? "" : `=${list}`}'`;
    });
  const bundle = await run([
    ...[DENO, "bundle", "--quiet", "--frozen", "--config", `${PROJECT}deno.json`],
    ...["--output", `${dir}/main.js`, `${PROJECT}src/main.ts`],
  ]);
  assertEquals(bundle.code, 0, bundle.stderr);
  assert(app_version !== "");
  const command = `'${DENO}' run --no-prompt --no-config ${flags.join(" ")} '${dir}/main.js'`;
  await Deno.writeTextFile(`${dir}/ateenvd`, `#!/bin/sh\nexec ${command} "$@"\n`, { mode: 0o755 });
}

Deno.test("compile: start.sh fronts it, and refuses what it was not compiled for", () =>
  exerciseCompiled(false));

Deno.test({
  name: `compile: the executable runs${
    isRealDenort ? "" : " (skipped: DENORT_BIN names no denort)"
  }`,
  ignore: !isRealDenort,
  fn: () => exerciseCompiled(true),
});
