// SIGTERM: what clients see of a drain, and what is left behind (nothing).
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { HealthCheckResponse_ServingStatus as ServingStatus } from "../../../gen/grpc/health/v1/health_pb.ts";
import { rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase } from "../contract_case.ts";
import { httpGet } from "../http_get.ts";
import { watchHealth } from "./health.ts";

/** A child that takes its time over a TERM: until its gate (a FIFO, in `$1`) opens. */
const SLOW_TO_STOP = "trap 'echo stopping; read _ <\"$1\"; echo last; exit 4' TERM; echo up; " +
  "while :; do sleep 0.05; done";

export const shutdownCases: readonly ContractCase[] = [
  {
    id: "shutdown.drain",
    line:
      "readyz 503, NOT_SERVING, new work refused, children TERM, followers the last bytes and OK",
    settings: { flags: ["--shutdown-grace", "30s"] },
    async run({ api, agent, address }) {
      const fifo = `${agent.workspace}/gate`;
      await api.sh('mkfifo "$1"', fifo);
      const id = await api.start(["sh", "-c", SLOW_TO_STOP, "sh", fifo]);
      using follower = api.outputs(id, { follow: true });
      await follower.until("up\n");
      const watch = watchHealth(api, "");
      assertEquals(await watch.next(), ServingStatus.SERVING);
      agent.signal("SIGTERM");
      assertEquals(await watch.next(), ServingStatus.NOT_SERVING);
      await follower.until("stopping\n");
      assertEquals((await httpGet(address, "/readyz")).status, 503);
      await rejectsWith(api.start(["true"]), status.UNAVAILABLE);
      // The child ends when it pleases, within the grace; its follower hears the last of it.
      await Deno.writeTextFile(fifo, "\n");
      assertEquals((await follower.rest()).text, "up\nstopping\nlast\n");
      watch.cancel();
      assertEquals((await agent.ended).code, 0);
    },
  },
  {
    id: "shutdown.kill",
    line: "children get TERM, then KILL; exit 0, all within --shutdown-grace",
    settings: { flags: ["--shutdown-grace", "2s"] },
    async run({ api, agent }) {
      const text =
        'trap "" TERM; setsid sh -c \'trap "" TERM; echo $$; while :; do sleep 1; done\' & ' +
        "echo $$; while :; do sleep 1; done";
      const id = await api.start(["sh", "-c", text]);
      using follower = api.outputs(id, { follow: true });
      while (follower.text.split("\n").length < 3) await follower.next();
      agent.signal("SIGTERM");
      await follower.rest();
      assertEquals((await agent.ended).code, 0);
      for (const pid of follower.text.trim().split("\n")) {
        const { stdout } = await new Deno.Command("sh", {
          args: [
            "-c",
            "sed -n 's/^State:[[:space:]]*\\(.\\).*/\\1/p' /proc/$1/status 2>/dev/null; :",
            "sh",
            pid,
          ],
        }).output();
        const state = new TextDecoder().decode(stdout).trim();
        assert(state === "" || state === "Z", `${pid} is still there: ${state}`);
      }
    },
  },
  {
    id: "shutdown.again",
    line: "another SIGTERM after more than a second: at once",
    settings: { flags: ["--shutdown-grace", "10m"] },
    async run({ api, agent }) {
      const fifo = `${agent.workspace}/gate`;
      await api.sh('mkfifo "$1"', fifo);
      const id = await api.start(["sh", "-c", SLOW_TO_STOP, "sh", fifo]);
      using follower = api.outputs(id, { follow: true });
      await follower.until("up\n");
      agent.signal("SIGTERM");
      await follower.until("stopping\n");
      // The second that the contract speaks of.
      await new Promise((resolve) => setTimeout(resolve, 1500));
      agent.signal("SIGTERM");
      assertEquals((await agent.ended).code, 0);
      await follower.rest().catch(() => {});
    },
  },
  {
    id: "shutdown.twice-at-once",
    line: "a terminal's Ctrl-C reaches the agent twice: the second within a second changes nothing",
    settings: { flags: ["--shutdown-grace", "30s"] },
    async run({ api, agent }) {
      const fifo = `${agent.workspace}/gate`;
      await api.sh('mkfifo "$1"', fifo);
      const id = await api.start(["sh", "-c", SLOW_TO_STOP, "sh", fifo]);
      using follower = api.outputs(id, { follow: true });
      await follower.until("up\n");
      agent.signal("SIGINT");
      agent.signal("SIGINT");
      await follower.until("stopping\n");
      await Deno.writeTextFile(fifo, "\n");
      assertEquals((await follower.rest()).text, "up\nstopping\nlast\n");
      assertEquals((await agent.ended).code, 0);
    },
  },
  {
    id: "shutdown.upload",
    line: "a half-finished upload at SIGTERM leaves the old file and no temporary file",
    settings: { flags: ["--shutdown-grace", "1s"] },
    async run({ api, agent }) {
      await api.write("file", "old");
      const upload = api.upload();
      await upload.send({ path: "file", chunk: new Uint8Array(500_000) });
      assertEquals(await api.readText("file"), "old");
      agent.signal("SIGTERM");
      assertEquals((await agent.ended).code, 0);
      assert(await upload.answer.then(() => false, () => true), "half an upload was answered");
      assertEquals(await Deno.readTextFile(`${agent.workspace}/file`), "old");
      const names = [...Deno.readDirSync(agent.workspace)].map(({ name }) => name).sort();
      assertEquals(names, ["case", "file"]);
    },
  },
  {
    id: "shutdown.idle",
    line: "idle connections hold nothing up: exit 0",
    settings: {},
    async run({ api, agent }) {
      assertEquals((await api.run(["true"])).process.exitCode, 0);
      agent.signal("SIGTERM");
      assertEquals((await agent.ended).code, 0);
    },
  },
];
