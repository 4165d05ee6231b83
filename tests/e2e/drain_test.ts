// The end of the real agent by signals: what each kind of client is told, what may go on, and for how long.
import { create } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { assert, assertEquals } from "@std/assert";
import {
  HealthCheckRequestSchema,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "../../gen/grpc/health/v1/health_pb.ts";
import { healthServiceDefinition } from "../../src/wire/definitions.ts";
import { AgentApi, rejectsWith } from "../helpers/agent_api.ts";
import { type AgentProcess, startAgentProcess } from "../helpers/agent_process.ts";
import { GOAWAY, RawConnection, SETTINGS } from "../helpers/raw_http2.ts";

/** Says `stopping` to a TERM and ends with its last words once the FIFO `$1` is written to. */
const SLOW_TO_STOP = "trap 'echo stopping; read _ <\"$1\"; echo last; exit 4' TERM; echo $$; " +
  "while :; do sleep 0.05; done";

/** Starts {@linkcode SLOW_TO_STOP} and follows it; `release` lets it end, once it is stopping. */
async function startSlow(agent: AgentProcess, api: AgentApi) {
  const fifo = `${agent.workspace}/gate`;
  await api.sh('mkfifo "$1"', fifo);
  const id = await api.start(["sh", "-c", SLOW_TO_STOP, "sh", fifo]);
  const follower = api.outputs(id, { follow: true });
  await follower.until("\n");
  const [pid = ""] = follower.text.split("\n");
  return { id, pid, follower, release: () => Deno.writeTextFile(fifo, "\n") };
}

async function readyz(agent: AgentProcess): Promise<number> {
  const response = await fetch(`http://${agent.address}/readyz`);
  await response.body?.cancel();
  return response.status;
}

/** Whether the process is there; a zombie is gone. */
async function isAlive(pid: string): Promise<boolean> {
  const { stdout } = await new Deno.Command("sed", {
    args: ["-n", "s/^State:[[:space:]]*//p", `/proc/${pid}/status`],
    stderr: "null",
  }).output();
  return !["", "Z", "X"].includes(new TextDecoder().decode(stdout).slice(0, 1));
}

/** Log lines of signals that were obeyed. */
function stops({ logLines }: AgentProcess) {
  return logLines.filter(({ msg }) => msg === "stopping")
    .map(({ signal, graceMs }) => ({ signal, graceMs }));
}

Deno.test("drain: probes, watchers, followers, new work and idle peers are each told", async () => {
  await using agent = await startAgentProcess({ flags: ["--shutdown-grace", "10m"] });
  using api = new AgentApi(agent.address);
  using idle = await RawConnection.open(agent.address);
  assertEquals((await idle.receive())?.type, SETTINGS);
  const { id, pid, follower, release } = await startSlow(agent, api);
  const { call } = api.stream(
    healthServiceDefinition.watch,
    create(HealthCheckRequestSchema, { service: "ateenv.v1alpha.ProcessService" }),
  );
  const health = call[Symbol.asyncIterator]();
  assertEquals((await health.next()).value?.status, ServingStatus.SERVING);
  const upload = api.upload();
  await upload.send({ path: "under-way", chunk: new Uint8Array(10) });
  // The upload's headers are there when a later call on the same connection is answered.
  await api.get(id);
  assertEquals(await readyz(agent), 200);

  agent.signal("SIGTERM");
  assertEquals((await health.next()).value?.status, ServingStatus.NOT_SERVING);
  assertEquals((await health.next()).done, true);
  await follower.until("stopping\n");
  assertEquals(await readyz(agent), 503);
  await rejectsWith(api.start(["true"]), status.UNAVAILABLE, "shutting down");
  await rejectsWith(api.write("new", "x"), status.UNAVAILABLE, "shutting down");
  await rejectsWith(api.read("new"), status.UNAVAILABLE, "shutting down");
  // Under way, and about what runs: served.
  upload.end();
  assertEquals(await upload.answer, 10n);
  assertEquals((await api.get(id)).exitCode, 0);
  assertEquals(await isAlive(pid), true);

  await release();
  assertEquals((await follower.rest()).text, `${pid}\nstopping\nlast\n`);
  assert((await idle.untilClosed()).includes(GOAWAY));
  assertEquals((await agent.ended).code, 0);
  assertEquals(await isAlive(pid), false);
  assertEquals(agent.logLines.at(-1)?.msg, "stopped");
});

Deno.test("drain: its grace bounds children that ignore TERM and clients that do not read", async () => {
  await using agent = await startAgentProcess({ flags: ["--shutdown-grace", "1s"] });
  using api = new AgentApi(agent.address);
  await api.write("large", new Uint8Array(20_000_000));
  const id = await api.start(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"]);
  using follower = api.outputs(id, { follow: true });
  await follower.until("\n");
  // Takes the first message of many megabytes and then none.
  using stalled = new AgentApi(agent.address);
  const { call } = stalled.readStream("large");
  await new Promise<void>((resolve) =>
    call.once("data", () => {
      call.pause();
      resolve();
    })
  );
  const startedMs = performance.now();
  agent.signal("SIGTERM");
  assertEquals((await follower.rest()).text.trim().length > 0, true);
  assertEquals((await agent.ended).code, 0);
  // Generous: the grace is a second, and without it the stalled client would hold the agent for ever.
  assert(performance.now() - startedMs < 30_000);
  assertEquals(await isAlive(follower.text.trim()), false);
  call.cancel();
});

Deno.test("drain: a signal again, within a second ignored, later obeyed at once", async () => {
  await using agent = await startAgentProcess({ flags: ["--shutdown-grace", "10m"] });
  using api = new AgentApi(agent.address);
  const { id, pid, follower } = await startSlow(agent, api);
  // As a terminal's Ctrl-C that comes by the task as well. Another signal, so that none is merged.
  agent.signal("SIGTERM");
  agent.signal("SIGINT");
  await follower.until("stopping\n");
  const stoppingMs = performance.now();
  assertEquals((await api.get(id)).finishedAt, undefined);
  assertEquals(stops(agent).length, 1);

  // The rule is about time on the agent's own clock, which began before `stoppingMs`: nothing but that
  // time passing can be waited for. The child still waits for its FIFO and would do so for ten minutes.
  while (performance.now() - stoppingMs <= 1000) {
    await new Promise((resolve) => setTimeout(resolve, 1001 - (performance.now() - stoppingMs)));
  }
  agent.signal("SIGTERM");
  assertEquals((await agent.ended).code, 0);
  assertEquals(await isAlive(pid), false);
  assertEquals(stops(agent).map(({ graceMs }) => graceMs), [600_000, 0]);
  await follower.rest().catch(() => {});
});
