// Suspend and restore: an agent that was stopped while the wall clock went on by days, and whose clients are
// gone, serves the next call at once, and no timer has fired for it.
import { assert, assertEquals } from "@std/assert";
import { createTempDir } from "../helpers/state_dir.ts";
import { startAgentProcess } from "./agent_process.ts";
import { run } from "./container.ts";

const DAYS = 3;
const DAY_MS = 86_400_000;
/** Long enough for everything that was due to be overdue. */
const SUSPENDED_MS = 3_000;

/** The library that shifts the wall clock of one process; the monotonic one stays as it is. */
async function findFakeTime(): Promise<string | undefined> {
  const { stdout } = await run(["sh", "-c", "ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null"]);
  return stdout.trim() || undefined;
}

const library = await findFakeTime();

/** Settles after `delayMs`: this is about time that passes. */
function pass(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, delayMs));
}

Deno.test({
  name: `suspend: stopped while days pass${
    library === undefined ? " (skipped: no libfaketime)" : ""
  }`,
  ignore: library === undefined,
  async fn() {
    await using dir = await createTempDir();
    const shift = `${dir.path}/shift`;
    await Deno.writeTextFile(shift, "+0");
    await using agent = await startAgentProcess(
      ["--retain-for", "1h", "--process-timeout", "1h", "--shutdown-grace", "5s"],
      {
        LD_PRELOAD: library!,
        FAKETIME_TIMESTAMP_FILE: shift,
        FAKETIME_NO_CACHE: "1",
        FAKETIME_DONT_FAKE_MONOTONIC: "1",
      },
    );
    const finished = (await agent.ateenv(["start", "--", "sh", "-c", "echo before"])).stdout.trim();
    assertEquals((await agent.ateenv(["wait", finished])).code, 0);
    const script = "echo up; until [ -e go ]; do sleep 0.05; done; echo after";
    const running = (await agent.ateenv(["start", "--", "sh", "-c", script])).stdout.trim();
    const follower = agent.follow(["logs", "-f", running]);
    const output = follower.stdout.pipeThrough(new TextDecoderStream()).getReader();
    assertEquals((await output.read()).value, "up\n");
    const dropped = agent.follow(["logs", "-f", running]);
    const droppedOutput = dropped.stdout.getReader({ mode: "byob" });
    assertEquals((await droppedOutput.read(new Uint8Array(3))).value!.length, 3);

    Deno.kill(agent.pid, "SIGSTOP");
    dropped.kill("SIGKILL");
    await dropped.status;
    await pass(SUSPENDED_MS);
    await Deno.writeTextFile(shift, `+${DAYS}d`);
    Deno.kill(agent.pid, "SIGCONT");

    const beforeMs = performance.now();
    const next = await agent.ateenv(["run", "--", "sh", "-c", ": >go; echo next"]);
    assertEquals([next.code, next.stdout], [0, "next\n"], next.stderr);
    assert(performance.now() - beforeMs < 10_000, "the next call hangs");
    // Neither the limit of an hour for processes nor that for records has come.
    assertEquals((await agent.ateenv(["logs", finished])).stdout, "before\n");
    assertEquals((await output.read()).value, "after\n");
    assertEquals((await follower.status).code, 0);
    await output.cancel();
    await follower.stderr.cancel();
    await Promise.all([droppedOutput.cancel(), dropped.stderr.cancel()]);
    assertEquals((await agent.ateenv(["wait", running])).code, 0);
    // Timestamps are the wall clock's, as it is now.
    const status = JSON.parse((await agent.ateenv(["status", "--json", running])).stdout);
    const [startedAt, finishedAt] = [status.startedAt, status.finishedAt].map((at) =>
      Date.parse(at)
    );
    assert(finishedAt! - startedAt! > (DAYS - 0.1) * DAY_MS, JSON.stringify(status));
  },
});

Deno.test("suspend: a client that vanished without a word is let go of within a minute and a half", async () => {
  await using agent = await startAgentProcess([]);
  const id = (await agent.ateenv(["start", "--", "sh", "-c", "echo up; exec sleep 600"])).stdout
    .trim();
  const before = await countSockets(agent.pid);
  const vanished = agent.follow(["logs", "-f", id]);
  const reader = vanished.stdout.getReader({ mode: "byob" });
  assertEquals((await reader.read(new Uint8Array(3))).value!.length, 3);
  assert(await countSockets(agent.pid) > before);
  // Its kernel goes on answering; it does not: neither to HTTP/2 pings nor with a FIN.
  vanished.kill("SIGSTOP");
  try {
    const deadlineMs = performance.now() + 90_000;
    // The kernel tells nobody but the agent.
    while (await countSockets(agent.pid) > before) {
      assert(performance.now() < deadlineMs, "it still holds the connection");
      await pass(1_000);
    }
  } finally {
    vanished.kill("SIGKILL");
    await Promise.all([reader.cancel(), vanished.stderr.cancel(), vanished.status]);
  }
  assertEquals((await agent.ateenv(["kill", id])).code, 0);
});

async function countSockets(pid: number): Promise<number> {
  const { stdout } = await run(["sh", "-c", `ls -l /proc/${pid}/fd | grep -c socket:`]);
  return Number(stdout.trim());
}
