// GetProcess: status, exit code and times, for every way to end.
import { assert, assertEquals } from "@std/assert";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase, Target } from "../contract_case.ts";
import { createGate } from "../gate.ts";

const { RUNNING, COMPLETED, FAILED, TERMINATED } = ProcessStatus;

async function ends(api: Target["api"], text: string, wanted: ProcessStatus, exitCode: number) {
  const { process } = await api.run(["sh", "-c", text]);
  assertEquals([process.status, process.exitCode], [wanted, exitCode], text);
}

export const getProcessCases: readonly ContractCase[] = [
  {
    id: "get.not-found",
    line: 'NOT_FOUND `process "<id>" not found` (all calls)',
    async run({ api }) {
      const words = 'process "no-such-id" not found';
      await rejectsWith(api.get("no-such-id"), status.NOT_FOUND, words);
      await rejectsWith(api.kill("no-such-id"), status.NOT_FOUND, words);
      for (const follow of [false, true]) {
        await rejectsWith(api.outputs("no-such-id", { follow }).rest(), status.NOT_FOUND, words);
      }
      await rejectsWith(api.get("../x"), status.NOT_FOUND, 'process "../x" not found');
    },
  },
  {
    id: "get.empty-id",
    line: "INVALID_ARGUMENT `process_id cannot be empty` (all calls)",
    async run({ api }) {
      const words = "process_id cannot be empty";
      await rejectsWith(api.get(""), status.INVALID_ARGUMENT, words);
      await rejectsWith(api.kill(""), status.INVALID_ARGUMENT, words);
      await rejectsWith(api.outputs("").rest(), status.INVALID_ARGUMENT, words);
    },
  },
  {
    id: "get.running",
    line: "RUNNING has exit_code 0 and no finished_at",
    async run({ api }) {
      const id = await api.start(["sleep", "1000"]);
      const process = await api.get(id);
      assertEquals([process.processId, process.status, process.exitCode], [id, RUNNING, 0]);
      assert(process.startedAt !== undefined);
      assertEquals(process.finishedAt, undefined);
      await api.kill(id);
    },
  },
  {
    id: "get.completed",
    line: "COMPLETED = exit 0",
    run: ({ api }) => ends(api, "exit 0", COMPLETED, 0),
  },
  {
    id: "get.failed",
    line: "FAILED = any other exit code, `exit 137` included",
    async run({ api }) {
      for (const code of [1, 3, 126, 127, 128, 137, 143, 255]) {
        await ends(api, `exit ${code}`, FAILED, code);
      }
    },
  },
  {
    id: "get.terminated",
    line: "TERMINATED = any death by signal, asked for or not, with 128 + signal",
    async run({ api }) {
      await ends(api, "kill -TERM $$", TERMINATED, 143);
      await ends(api, "kill -KILL $$", TERMINATED, 137);
      await ends(api, "kill -HUP $$", TERMINATED, 129);
      await ends(api, "ulimit -c 0; kill -SEGV $$", TERMINATED, 139);
      await ends(api, "kill -USR1 $$", TERMINATED, 138);
    },
  },
  {
    id: "get.final-means-readable",
    line: "the status becomes final only once all output up to then can be read",
    async run({ api }) {
      for (let round = 0; round < 20; round++) {
        const id = await api.start(["sh", "-c", "head -c 300000 /dev/zero; exit 3"]);
        let process = await api.get(id);
        while (process.status === RUNNING) process = await api.get(id);
        assertEquals([process.status, process.exitCode], [FAILED, 3]);
        using reader = api.outputs(id);
        assertEquals((await reader.rest()).stdout.length, 300_000);
      }
    },
  },
  {
    id: "get.descendant-holds-pipe",
    line: "never waits longer than the drain window, however many descendants hold the pipes",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const text = '(read _ <"$1") & (read _ <"$1") & echo started; exit 5';
      const id = await api.start(["sh", "-c", text, "sh", gate.path]);
      // The descendants end only when this says so: a finish before it waited for none of them.
      const process = await api.finished(id);
      assertEquals([process.status, process.exitCode], [FAILED, 5]);
      using reader = api.outputs(id);
      assertEquals((await reader.rest()).text, "started\n");
      assertEquals(await api.kill(id), 5);
    },
  },
  {
    id: "get.finished-at",
    line: "finished_at is the leader's exit, not the end of the drain",
    async run({ api }) {
      // The best of some: a busy machine may hold any single one up for longer than the drain window.
      let bestMs = Infinity;
      for (let round = 0; round < 8 && bestMs >= 400; round++) {
        const id = await api.start(["sh", "-c", "sleep 1000 & date +%s%3N"]);
        const process = await api.finished(id);
        using reader = api.outputs(id);
        const exitMs = Number((await reader.rest()).text);
        bestMs = Math.min(bestMs, timestampMs(process.finishedAt!) - exitMs);
        assert(timestampMs(process.finishedAt!) >= timestampMs(process.startedAt!));
        await api.kill(id);
      }
      assert(bestMs < 400, `finished_at is ${bestMs} ms after the leader's last words`);
    },
  },
  {
    id: "get.stable",
    line: "a finished process says the same, any number of times",
    async run({ api }) {
      const { process } = await api.run(["sh", "-c", "exit 9"]);
      for (let round = 0; round < 3; round++) {
        assertEquals(await api.get(process.processId), process);
      }
    },
  },
];
