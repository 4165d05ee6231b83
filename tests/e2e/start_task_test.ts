// `deno task start` itself, as README tells users to run it: its permissions, its calls, its end.
import { assert, assertEquals } from "@std/assert";
import { ProcessStatus } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { AgentApi, INT64_MAX } from "../helpers/agent_api.ts";
import {
  type AgentProcess,
  type AgentProcessOptions,
  startAgentProcess,
} from "../helpers/agent_process.ts";
import { createTempDir } from "../helpers/state_dir.ts";
import { runOverUnixSocket } from "../helpers/unix_client.ts";
import { deniedRequests, parseAudit, parseGrants, unusedScopes } from "./permission_audit.ts";

const TASK = [Deno.execPath(), "task", "start"];

/** Starts the task with its own defaults, on a free port; what it makes by itself lies below `place`. */
function startTask(place: string, options: AgentProcessOptions = {}): Promise<AgentProcess> {
  return startAgentProcess({
    isBare: true,
    program: TASK,
    ...options,
    env: {
      ATEENV_LISTEN: "127.0.0.1:0",
      ATEENV_WORKSPACE: `${place}/workspace`,
      TMPDIR: place,
      ...options.env,
    },
  });
}

/** A directory in memory, where there is such a place and it is another device than `path`. */
async function createOnOtherDevice(path: string) {
  const memory = await Deno.stat("/dev/shm").catch(() => undefined);
  const isOther = memory !== undefined && memory.dev !== (await Deno.stat(path)).dev;
  const made = await Deno.makeTempDir(isOther ? { dir: "/dev/shm", prefix: "ateenvd-test-" } : {});
  return {
    path: made,
    isOther,
    [Symbol.asyncDispose]: () => Deno.remove(made, { recursive: true }),
  };
}

async function textOf(program: string, ...args: string[]): Promise<string> {
  const { stdout } = await new Deno.Command(program, { args, stderr: "null" }).output();
  return new TextDecoder().decode(stdout);
}

/** Arguments of the agent itself, which runs somewhere below the task's process. */
async function agentArguments(pid: number): Promise<string[]> {
  const pending = [`${pid}`];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const args = (await textOf("cat", `/proc/${next}/cmdline`)).split("\0");
    if (args.some((arg) => arg.endsWith("/src/main.ts"))) return args;
    const children = await textOf("sh", "-c", "cat /proc/$1/task/*/children", "sh", next);
    pending.push(...children.trim().split(/\s+/).filter((child) => child !== ""));
  }
  throw new Error("no agent below the task");
}

function names(directory: string): string[] {
  return [...Deno.readDirSync(directory)].map(({ name }) => name).sort();
}

/** All six calls, and a kill of a tree that has left the group; gives pids that must be gone. */
async function sixCalls(api: AgentApi): Promise<string[]> {
  const id = await api.start(["sh", "-c", "echo hi; exit 3"]);
  using hi = api.outputs(id, { follow: true });
  assertEquals((await hi.rest()).text, "hi\n");
  const { status, exitCode } = await api.get(id);
  assertEquals([status, exitCode], [ProcessStatus.FAILED, 3]);
  assertEquals(await api.write("notes/a.txt", "hello\n"), 6n);
  assertEquals(await api.readText("notes/a.txt"), "hello\n");
  const tree = await api.start([
    "sh",
    "-c",
    "setsid sh -c 'echo $$; exec sleep 999' & sh -c 'echo $$; exec sleep 999' & echo $$; wait",
  ]);
  using reader = api.outputs(tree, { follow: true });
  while (reader.text.split("\n").length < 4) await reader.next();
  assertEquals(await api.kill(tree), 137);
  return reader.text.trim().split("\n");
}

async function alive(pids: readonly string[]): Promise<string[]> {
  const states = await Promise.all(
    pids.map((pid) => textOf("sed", "-n", "s/^State:[[:space:]]*//p", `/proc/${pid}/status`)),
  );
  return pids.filter((_, index) => !["", "Z", "X"].includes(states[index]!.slice(0, 1)));
}

const MODES = [
  { name: "unscoped run", env: {} },
  {
    name: "scoped run",
    env: { ATEENV_ALLOW_RUN: "sh,sleep,setsid,kill,grep", LD_BIND_NOW: "1" },
  },
] as const;

for (const { name, env } of MODES) {
  Deno.test(`deno task start, ${name}: six calls, no permission denied, none unused, nothing left`, async () => {
    await using place = await createTempDir();
    // On another device than the workspace, so that uploads need the workspace's own write scope.
    await using temporary = await createOnOtherDevice(place.path);
    const auditPath = `${place.path}/audit.jsonl`;
    let args: string[];
    let grants: ReturnType<typeof parseGrants>;
    let pids: string[];
    let left: string;
    {
      await using task = await startTask(place.path, {
        env: { ...env, DENO_AUDIT_PERMISSIONS: auditPath, TMPDIR: temporary.path },
      });
      args = await agentArguments(task.pid);
      grants = parseGrants(args);
      const ready = await fetch(`http://${task.address}/readyz`);
      assertEquals([ready.status, (await ready.text()).trim()], [200, "ok"]);
      using api = new AgentApi(task.address);
      pids = await sixCalls(api);
      assertEquals(await alive(pids), []);
      // Left for the end: a child that would outlive an agent that does not clean up.
      const id = await api.start(["sh", "-c", "setsid sleep 999 & echo $!; wait"]);
      using reader = api.outputs(id, { follow: true });
      await reader.until("\n");
      left = reader.text.trim();
      assertEquals(await alive([left]), [left]);
    }
    // The end: SIGTERM to the task gave exit code 0 (the disposal asserts that), and nothing is left.
    assertEquals(await alive([left, ...pids]), []);
    assertEquals(names(place.path), ["audit.jsonl", "workspace"]);
    assertEquals(names(temporary.path), []);
    assertEquals(names(`${place.path}/workspace`), ["notes"]);
    assertEquals(names(`${place.path}/workspace/notes`), ["a.txt"]);

    for (const permission of ["read", "write", "net", "env"]) {
      assert((grants.get(permission) ?? []).length > 0, `--allow-${permission} is not scoped`);
    }
    assert(args.includes("--no-prompt") && !args.includes("-A") && !args.includes("--allow-all"));
    const audit = parseAudit(await Deno.readTextFile(auditPath));
    assert(audit.length > 0, "the audit did not reach deno");
    assertEquals(deniedRequests(audit, grants), []);
    const unused = unusedScopes(audit, grants).filter((scope) =>
      // Who has no LD_* in the environment has no use for the right to take it out.
      !(scope === "env LD_*" && name === "unscoped run") &&
      !(scope === `write ${place.path}/workspace` && !temporary.isOther)
    );
    assertEquals(unused, []);
  });
}

Deno.test("deno task start: the unix socket and the temporary state directory go at the end", async () => {
  await using place = await createTempDir();
  const socket = `${place.path}/agent.sock`;
  {
    await using _ = await startTask(place.path, { flags: ["--unix", socket] });
    assertEquals(await runOverUnixSocket(socket, "echo", "x"), "x\n");
    assertEquals(names(place.path).length, 3);
  }
  assertEquals(names(place.path), ["workspace"]);
});

Deno.test("deno task start in a fresh copy: ./workspace of the project is made and served", async () => {
  await using place = await createTempDir();
  const root = new URL("../../", import.meta.url).pathname;
  const { success } = await new Deno.Command("cp", {
    args: [
      "-R",
      ...["src", "gen", "deno.json", "deno.lock"].map((name) => root + name),
      place.path,
    ],
  }).output();
  assert(success);
  await using temporary = await createTempDir();
  await using task = await startAgentProcess({
    isBare: true,
    program: TASK,
    cwd: place.path,
    env: { ATEENV_LISTEN: "127.0.0.1:0", TMPDIR: temporary.path },
  });
  assertEquals(task.workspace, `${place.path}/workspace`);
  using api = new AgentApi(task.address);
  await api.write("a", "A");
  assertEquals((await api.run(["pwd"])).text, `${place.path}/workspace\n`);
  assertEquals(await Deno.readTextFile(`${place.path}/workspace/a`), "A");
});

Deno.test("a process that leaves `sleep 30` behind is finished long before the sleep is", async () => {
  await using agent = await startAgentProcess();
  using api = new AgentApi(agent.address);
  const id = await api.start(["sh", "-c", "sleep 30 & echo $!; echo started"]);
  using follower = api.outputs(id, { follow: true });
  await follower.rest();
  // The follower has ended, GetProcess says finished, and the sleep still runs: order, not time.
  const { status } = await api.get(id);
  const [pid = "", word] = follower.text.split("\n");
  assertEquals([status, word], [ProcessStatus.COMPLETED, "started"]);
  assertEquals(await alive([pid]), [pid]);
  await api.kill(id);
  assertEquals(await alive([pid]), []);
});

/** For the soak: `ATEENV_TEST_ROUNDS=10000`. */
const ROUNDS = Number(Deno.env.get("ATEENV_TEST_ROUNDS") ?? 500);

Deno.test(`${ROUNDS} times in a row: final means FAILED 3 with all 300,000 bytes readable`, async () => {
  await using agent = await startAgentProcess();
  using api = new AgentApi(agent.address);
  for (let round = 0; round < ROUNDS; round++) {
    const id = await api.start(["sh", "-c", "head -c 300000 /dev/zero; exit 3"]);
    let process = await api.get(id);
    while (process.status === ProcessStatus.RUNNING) process = await api.get(id);
    // Asked for at once: the first poll that shows a final status already promises all of it.
    using reader = api.outputs(id, { stderrOffset: INT64_MAX });
    const { length } = (await reader.rest()).stdout;
    assertEquals([process.status, process.exitCode, length], [ProcessStatus.FAILED, 3, 300_000]);
  }
});
