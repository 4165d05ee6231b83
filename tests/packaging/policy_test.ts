// The ready policies, for real: the command with its production flags. And what --check-policy says of them.
import { assert, assertEquals } from "@std/assert";
import { createTempDir } from "../helpers/state_dir.ts";
import { runStartScript, startAgentProcess } from "./agent_process.ts";
import { run } from "./container.ts";

Deno.test("policy files: everything about files works without any permission to run", async () => {
  await using agent = await startAgentProcess(["--enable-process=false"]);
  const commandLine = (await run(["cat", `/proc/${agent.pid}/cmdline`])).stdout.split("\0");
  assert(
    !commandLine.some((word) => word.startsWith("--allow-run") || word === "-A"),
    `${commandLine}`,
  );

  const put = await agent.ateenv(["put", "-", "deep/er/file"], "content\n");
  assertEquals(put.code, 0, put.stderr);
  assertEquals((await agent.ateenv(["cat", "deep/er/file"])).stdout, "content\n");
  const outside = await agent.ateenv(["cat", "/etc/hostname"]);
  assert(outside.code !== 0 && outside.stderr.includes("outside"), outside.stderr);
  const started = await agent.ateenv(["start", "--", "true"]);
  assert(started.code !== 0 && /does not implement/.test(started.stderr), started.stderr);
  assertEquals((await agent.ateenv(["health"])).code, 0);
  const children = await run(["cat", `/proc/${agent.pid}/task/${agent.pid}/children`]);
  assertEquals(children.stdout, "");
});

Deno.test("policy build: the listed programs run and are killed as trees, no other one starts", async () => {
  const list = "sh,cat,grep,sleep,setsid,env";
  await using agent = await startAgentProcess(["--allow-run", list], {
    LD_LIBRARY_PATH: "/nowhere",
  });
  assertEquals(agent.started["killReach"], "tree");
  const ran = await agent.ateenv(["run", "--", "sh", "-c", "echo hi; exit 3"]);
  assertEquals([ran.code, ran.stdout], [3, "hi\n"], ran.stderr);
  // What a listed program starts in its turn is not the policy's any more; what the call starts is.
  const denied = await agent.ateenv(["start", "--", "ls"]);
  assert(denied.code !== 0 && /ls/.test(denied.stderr), denied.stderr);
  const preload = await agent.ateenv([
    "start",
    "--env",
    "LD_PRELOAD=/x.so",
    "--",
    "sh",
    "-c",
    "true",
  ]);
  assert(preload.code !== 0 && /LD_PRELOAD/.test(preload.stderr), preload.stderr);

  const id = (await agent.ateenv(["start", "--", "sh", "-c", "setsid sleep 98766 & echo $!; wait"]))
    .stdout
    .trim();
  const follower = agent.follow(["logs", "-f", id]);
  const reader = follower.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const grandchild = (await reader.read()).value!.trim();
  assertEquals((await agent.ateenv(["kill", id])).code, 0);
  await reader.cancel();
  await Promise.all([follower.stderr.cancel(), follower.status]);
  // A zombie is gone; when its new parent reaps it is that one's affair.
  const alive = await run(["grep", "-s", "^State:.[^Z]", `/proc/${grandchild}/status`]);
  assertEquals(alive.stdout, "");
});

async function checkPolicy(...args: readonly string[]) {
  await using dir = await createTempDir();
  const { code, stdout } = await runStartScript([...args, "--check-policy"], dir.path);
  return { code, text: stdout };
}

Deno.test("--check-policy: says what is permitted, how far a kill reaches and what will be refused", async () => {
  const full = await checkPolicy();
  assertEquals(full.code, 0, full.text);
  for (const line of ["run all programs", "a kill reaches all descendants", "paths are confined"]) {
    assert(full.text.includes(line), full.text);
  }
  const files = await checkPolicy("--enable-process=false");
  assertEquals(files.code, 0, files.text);
  assert(
    files.text.includes("ProcessService: UNIMPLEMENTED") && !files.text.includes("run "),
    files.text,
  );
  const alone = await checkPolicy("--allow-run", "true");
  assertEquals(alone.code, 0, alone.text);
  assert(alone.text.includes("a kill reaches the first process only"), alone.text);
  const processes = await checkPolicy("--enable-filesystem=false");
  assertEquals(processes.code, 0, processes.text);
  assert(processes.text.includes("FileSystemService: UNIMPLEMENTED"), processes.text);
});

Deno.test("--check-policy: exit code 1 on a contradiction, which it names", async () => {
  const missing = await checkPolicy("--allow-run", "sh,no-such-program,/no/such/path");
  assertEquals(missing.code, 1, missing.text);
  assert(missing.text.includes("no-such-program of --allow-run: not found in PATH"), missing.text);
  assert(missing.text.includes("/no/such/path of --allow-run: no such program"), missing.text);

  await using dir = await createTempDir();
  const { path } = dir;
  for (const name of ["ws", "state"]) await Deno.mkdir(`${path}/${name}`);
  await Deno.symlink("/proc", `${path}/state/proc`);
  const wider = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-A", new URL("../../src/main.ts", import.meta.url).pathname, "--check-policy"],
      ...["--workspace", `${path}/ws`, "--state-dir", `${path}/state`, "--allow-run", "sh"],
    ],
  }).output();
  const text = new TextDecoder().decode(wider.stdout);
  assertEquals(wider.code, 1, text);
  assert(text.includes("permission to read everything, wider than --root"), text);
  assert(text.includes("permission to run all programs, wider than --allow-run"), text);
});

Deno.test({
  name:
    "--check-policy: a workspace that cannot be written to, and --run-as without the capability",
  ignore: Deno.uid() !== 0,
  async fn() {
    await using dir = await createTempDir();
    const { path } = dir;
    const start = new URL("../../src/start.sh", import.meta.url).pathname;
    const script = `mkdir -p ${path}/ws && mount -t tmpfs -o ro tmpfs ${path}/ws && exec capsh \
--drop=cap_setuid,cap_setgid --shell=/bin/sh -- ${start} --workspace ${path}/ws --state-dir ${path}/state \
--run-as 1000 --auth none --check-policy`;
    const { code, stdout, stderr } = await run(["unshare", "--mount", "sh", "-c", script]);
    assertEquals(code, 1, stdout + stderr);
    assert(/ws cannot be written to: EROFS/.test(stdout), stdout);
    assert(/--run-as 1000:1000: .*CAP_SETUID/.test(stdout), stdout);
  },
});

Deno.test({
  name: "--check-policy: --run-as without the capability to kill what it starts",
  ignore: Deno.uid() !== 0,
  async fn() {
    await using dir = await createTempDir();
    const { path } = dir;
    await Deno.chmod(path, 0o755);
    const start = new URL("../../src/start.sh", import.meta.url).pathname;
    const check = (drop: string) =>
      run([
        ...["capsh", `--drop=${drop}`, "--shell=/bin/sh", "--", start, "--workspace", `${path}/ws`],
        ...["--state-dir", `${path}/state`, "--run-as", "1000", "--auth", "none", "--check-policy"],
      ]);
    const without = await check("cap_kill");
    assertEquals(without.code, 1, without.stdout + without.stderr);
    assert(/--run-as 1000:1000: .*CAP_KILL/.test(without.stdout), without.stdout);
    const able = await check("cap_net_raw");
    assertEquals(able.code, 0, able.stdout + able.stderr);
  },
});
