// Kills at the instant of the natural exit, and kills when the kernel has no process left to give.
import { type ServiceError, status } from "@grpc/grpc-js";
import { AgentApi } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { createTempDir } from "../../helpers/state_dir.ts";
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { runTool, skipped } from "../root.ts";
import { exactly, type Finding, scaled, type Scenario, type SoakContext } from "../scenario.ts";

const AT_ONCE = 25;

/** What lives about as long as a kill takes to come. */
function shortLife(index: number): string[] {
  return index % 2 === 0 ? ["true"] : ["sleep", String(index / 20)];
}

async function naturalExits(context: SoakContext): Promise<Finding[]> {
  await using agent = await startAgentProcess();
  using api = new AgentApi(agent.address);
  const rounds = scaled(context, 1_000 / AT_ONCE, 4);
  let natural = 0;
  let odd = 0;
  for (let round = 0; round < rounds; round++) {
    const runs = Array.from({ length: AT_ONCE }, async (_, index) => {
      const id = await api.start(shortLife(index));
      const code = await api.kill(id);
      const { exitCode, status } = await api.get(id);
      const isNatural = status === ProcessStatus.COMPLETED && code === 0;
      const isKilled = status === ProcessStatus.TERMINATED && code === 137;
      if (exitCode !== code || !(isNatural || isKilled)) odd++;
      if (isNatural) natural++;
    });
    await Promise.all(runs);
  }
  const kills = rounds * AT_ONCE;
  context.note(`kills: ${natural} of ${kills} processes were quicker than their kill`);
  return [
    exactly(`${kills} kills at the instant of natural exit, neither the one nor the other`, odd, 0),
    exactly("some were quicker, some were not", natural > 0 && natural < kills, true),
  ];
}

/** A cgroup that limits the number of processes. Root's own are not limited otherwise. */
async function createPidsCgroup(): Promise<string | undefined> {
  const mounts = (await runTool("cat", "/proc/mounts")).split("\n").map((line) => line.split(" "));
  for (const [, mount, type, options] of mounts) {
    if (type === "cgroup2" || (type === "cgroup" && options!.split(",").includes("pids"))) {
      const path = `${mount}/ateenvd-soak-${crypto.randomUUID()}`;
      const script = 'mkdir "$1" && { test -e "$1/pids.max" || { rmdir "$1"; false; }; }';
      const isMade = await runTool("sh", "-c", script, "sh", path).then(() => true, () => false);
      if (isMade) return path;
    }
  }
  return undefined;
}

/** Shells that fork until they may not, and leave what they have started behind. */
const BOMB = `for branch in 1 2 3 4; do
  setsid sh -c 'while :; do sleep 600 & done' 2>/dev/null &
done
echo forked; exec sleep 600`;

async function noProcessLeft(context: SoakContext): Promise<Finding[]> {
  const path = await createPidsCgroup();
  if (path === undefined) return [skipped("no cgroup that limits processes can be made")];
  await using _directory = {
    [Symbol.asyncDispose]: async () => void await runTool("rmdir", path),
  };
  await using scratch = await createTempDir();
  const limit = async (count: string) => {
    await runTool("sh", "-c", `echo ${count} >${path}/pids.max`);
  };
  await using agent = await startAgentProcess({
    before: `echo $$ >${path}/cgroup.procs`,
    workspace: scratch.path,
  });
  using api = new AgentApi(agent.address);
  await api.run(["true"]);
  const idle = Number((await runTool("cat", `${path}/pids.current`)).trim());
  await limit(String(idle + 80));
  const rounds = scaled(context, 10, 2);
  let refused = 0;
  let wrong = 0;
  for (let round = 0; round < rounds; round++) {
    const id = await api.start(["sh", "-c", BOMB]);
    await waitExhausted(path, idle + 80);
    const start = await api.run(["true"]).then(
      () => status.OK,
      (error: ServiceError) => error.code,
    );
    if (start === status.RESOURCE_EXHAUSTED) refused++;
    const code = await killRepeatedly(api, id);
    const left = await survivors(id);
    await waitRoom(path, idle + 20);
    const { process } = await api.run(["true"]);
    if (code !== 137 && code !== 2 || left > 0 || process.exitCode !== 0) {
      wrong++;
      context.note(`kills: code ${code}, ${left} left, then ${process.exitCode}`);
    }
  }
  await limit("max");
  return [
    exactly(`${rounds} fork bombs up to the limit of processes: starts refused`, refused, rounds),
    exactly("odd exit codes, processes left, or starts that fail afterwards", wrong, 0),
  ];
}

/** Processes that carry the marker. What init has not reaped yet carries none. */
async function survivors(processId: string): Promise<number> {
  const script = 'grep -lszx "ATEENV_PROCESS_ID=$1" /proc/[0-9]*/environ | wc -l';
  return Number(await runTool("sh", "-c", script, "sh", processId));
}

/** Nothing tells when there is room again, either: orphans count until init has reaped them. */
async function waitRoom(path: string, most: number): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    if (Number((await runTool("cat", `${path}/pids.current`)).trim()) <= most) return;
    await new Promise<void>((resolve) => setTimeout(resolve, 10));
  }
}

/** The kernel tells nobody that the limit is reached. */
async function waitExhausted(path: string, limit: number): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    if (Number((await runTool("cat", `${path}/pids.current`)).trim()) >= limit) return;
    await new Promise<void>((resolve) => setTimeout(resolve, 10));
  }
}

async function killRepeatedly(api: AgentApi, id: string): Promise<number> {
  for (;;) {
    try {
      return await api.kill(id);
    } catch (error) {
      if ((error as ServiceError).code !== status.DEADLINE_EXCEEDED) throw error;
    }
  }
}

export const kills: Scenario = {
  name: "kills",
  run: async (context) => [...await naturalExits(context), ...await noProcessLeft(context)],
};
