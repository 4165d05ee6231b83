// The Dockerfile, built and started without an engine: as the image says, as Agent Substrate starts it, and
// /ate in roots that have no libc. `deno task test:packaging`; takes root, debootstrap and the network.
import { assert, assertEquals } from "@std/assert";
import { createTempDir } from "../helpers/state_dir.ts";
import { buildImages, execute, type Image } from "./build_image.ts";
import { Container, type ContainerOptions, run, type RunningContainer } from "./container.ts";
import { hasGvisor, startGvisor } from "./gvisor.ts";

const DEBIAN = Deno.env.get("ATEENV_PACKAGING_DEBIAN");
const COMMIT = "0123456789ab";
/** As Substrate's template has it: nothing else, no HOME. */
const SUBSTRATE = { PORT: "80", ATEENV_AUTH: "none" };

const shared = await build();

async function build() {
  if (DEBIAN === undefined) return undefined;
  const directory = await createTempDir("ateenvd-image-");
  const images = await buildImages(directory.path, DEBIAN, { COMMIT });
  return { directory, image: images.get("ateenvd")!, ate: images.get("ate")! };
}

function assertIncludes(text: string, part: string): void {
  assert(text.includes(part), text);
}

function test(name: string, body: (image: Image, ate: Image) => Promise<void>): void {
  Deno.test({
    name: `${name}${shared === undefined ? " (needs root: tests/packaging/run.sh)" : ""}`,
    ignore: shared === undefined,
    fn: () => body(shared!.image, shared!.ate),
  });
}

/** What every way to start it has to do. */
async function exercise(start: Promise<RunningContainer>, port: string): Promise<void> {
  await using container = await start;
  const shell = (script: string) => container.exec("/ate/bin/sh", "-c", script);
  const ateenv = (...words: string[]) => container.exec("/ate/ateenv", ...words);

  const ready = await container.exec("/ate/bin/wget", "-qO-", `http://127.0.0.1:${port}/readyz`);
  assertEquals(ready.stdout, "ok", ready.stderr);

  assertEquals((await ateenv("run", "--", "sh", "-c", "ulimit -n")).stdout, "1024\n");
  const status = await container.readInit("status");
  assert(/^CapBnd:\s+0000000020000420$/m.test(status), status);

  const ran = await ateenv("run", "--", "sh", "-c", "pwd; echo hi; exit 3");
  assertEquals([ran.code, ran.stdout], [3, "/workspace\nhi\n"], ran.stderr);
  // A shell that is init ignores some signals; its children's children must not.
  const ignored = await ateenv("run", "--", "cat", "/proc/self/status");
  // gVisor has no such line.
  const mask = /^SigIgn:\s+(\S+)$/m.exec(ignored.stdout)?.[1] ?? "0";
  assertEquals(Number.parseInt(mask.slice(-8), 16) & 0x7fff, 0, ignored.stdout);
  // Nothing of the agent's own gets into a child.
  const env = await ateenv("run", "--", "env");
  assert(!/^(ATEENVD?_(?!PROCESS_ID=)|PORT=|DENO_)/m.test(env.stdout), env.stdout);

  const put = await shell("echo content | /ate/ateenv put - a/b.txt");
  assertEquals(put.code, 0, put.stderr);
  assertEquals((await ateenv("cat", "a/b.txt")).stdout, "content\n");

  // An orphan: nobody but PID 1 can reap it. The kernel tells no one else of that, so the test looks.
  const orphan = await ateenv("run", "--", "sh", "-c", "sleep 0.2 >/dev/null 2>&1 & echo $!");
  const reaped = await shell(
    `for i in $(seq 200); do [ -e /proc/${orphan.stdout.trim()} ] || exit 0; sleep 0.05; done; exit 1`,
  );
  assertEquals(reaped.code, 0, "the orphan is still there");

  const started = await ateenv(
    "start",
    "--",
    "sh",
    "-c",
    "setsid sleep 98765 & sleep 98765 & wait",
  );
  const sleepers = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cx '9876[5]'";
  const seen = await shell(
    `for i in $(seq 500); do [ "$(${sleepers})" = 2 ] && exit 0; sleep 0.02; done; exit 1`,
  );
  assertEquals(seen.code, 0, "the tree does not come up");
  const killed = await ateenv("kill", started.stdout.trim());
  assertEquals(killed.code, 0, killed.stderr);
  assertEquals((await shell(sleepers)).stdout, "0\n");

  const policy = await container.exec("/ate/ateenvd", "--check-policy");
  assertEquals(policy.code, 0, policy.stdout + policy.stderr);
  assertIncludes(policy.stdout, "a kill reaches all descendants");
  assertIncludes(policy.stdout, "paths are confined");
  assertIncludes((await container.exec("/ate/ateenvd", "--version")).stdout, `+${COMMIT}\n`);

  await ateenv("start", "--", "sleep", "98765");
  const stopped = await container.stop();
  assertEquals(stopped.code, 0, stopped.log);
  assert(stopped.stopMs < 10_000, `${stopped.stopMs} ms to stop`);
  console.log(
    `      start ${Math.round(container.startMs)} ms, stop ${Math.round(stopped.stopMs)} ms`,
  );
}

test("image: starts as Agent Substrate starts it: PID 1, uid 0, three capabilities, read-only root", async (image) => {
  const { root, env } = image;
  const started = { root, user: "0:0", env: { ...env, ...SUBSTRATE }, command: image.entrypoint };
  await exercise(Container.start(started), "80");
});

test("image: starts as the user that it names, and its HEALTHCHECK tells", async (image) => {
  const { root, env, user } = image;
  assert(!user.startsWith("0"), user);
  const options = { root, user, env: { ...env, ATEENV_AUTH: "none" }, command: image.entrypoint };
  await exercise(Container.start(options), env["PORT"]!);
  await using container = await Container.start(options);
  assertEquals((await container.exec(...image.healthcheck)).code, 0);
});

test("image: reachable from outside, it does not start without a word on who may call", async (image) => {
  const { root, env, user, entrypoint } = image;
  let message = "";
  try {
    await using _container = await Container.start({ root, user, env, command: entrypoint });
  } catch (error) {
    message = (error as Error).message;
  }
  assertIncludes(message, "--auth none");
});

test(
  "image: volumes are the workspace and the state, and nothing in it is secret or large",
  async (image, ate) => {
    assertEquals(image.volumes, ["/workspace", "/var/lib/ateenv"]);
    const { stdout } = await run(["find", `${ate.root}/ate`, "-type", "f", "-printf", "%P\n"]);
    const files = stdout.trim().split("\n");
    for (const file of files) assert(/^(bin|lib|app|cache)\/|^ateenvd?$/.test(file), file);
    assertEquals(files.filter((file) => file.startsWith("app/")).sort(), [
      "app/LICENSE",
      "app/cli.mjs",
      "app/main.mjs",
      "app/start.sh",
    ]);
    const bytes = Number((await run(["du", "-sb", `${ate.root}/ate`])).stdout.split("\t")[0]);
    console.log(`      /ate ${(bytes / 2 ** 20).toFixed(1)} MiB`);
    assert(bytes < 130 * 2 ** 20, `${bytes} bytes`);
  },
);

/** A root as small as images get; `tools` puts busybox into its /bin, as Alpine has it. */
async function makeRoot(tools: boolean) {
  const root = await createTempDir("ateenvd-root-");
  const { path } = root;
  for (const dir of ["ate", "proc", "dev", "tmp", "workspace", "var/lib/ateenv", "etc"]) {
    await Deno.mkdir(`${path}/${dir}`, { recursive: true });
  }
  if (tools) {
    await Deno.mkdir(`${path}/bin`);
    await Deno.copyFile("/bin/busybox", `${path}/bin/busybox`);
    await execute(["chroot", path, "/bin/busybox", "--install", "-s", "/bin"]);
  }
  return root;
}

/** Mounted into a root that is not ours, as Agent Substrate starts it. */
function elsewhere(root: string, ate: Image): ContainerOptions {
  const env = { ...SUBSTRATE, ATEENV_WORKSPACE: "/workspace", ATEENV_STATE_DIR: "/var/lib/ateenv" };
  return { root, ate: `${ate.root}/ate`, user: "0:0", env, command: ["/ate/ateenvd"] };
}

test("/ate: runs where there is busybox and no libc, as in Alpine", async (_image, ate) => {
  await using root = await makeRoot(true);
  await exercise(Container.start(elsewhere(root.path, ate)), "80");
});

test("/ate: runs where there is nothing at all, as in a distroless image", async (_image, ate) => {
  await using root = await makeRoot(false);
  await exercise(Container.start(elsewhere(root.path, ate)), "80");
});

const gvisor = shared !== undefined && await hasGvisor();

Deno.test({
  name: `/ate: runs under gVisor${
    gvisor ? "" : " (skipped: runsc is not here, or does not run here)"
  }`,
  ignore: !gvisor,
  async fn() {
    await using root = await makeRoot(false);
    await exercise(startGvisor(elsewhere(root.path, shared!.ate)), "80");
  },
});

test("the roots that were built are removed", async () => {
  await shared!.directory[Symbol.asyncDispose]();
});
