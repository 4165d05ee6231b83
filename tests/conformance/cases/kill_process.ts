// KillProcess: how far it reaches, what it answers, and whom it leaves alone.
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { rejectsWith } from "../../helpers/agent_api.ts";
import { alivePids } from "../alive.ts";
import type { ContractCase, Target } from "../contract_case.ts";
import { createGate } from "../gate.ts";

/**
 * A leader with a child of each kind, each of which prints its pid: in the group, a child of a child,
 * setsid'd, double-forked out of the session, stopped, and one that traps TERM.
 */
const TREE = `
  say='echo $$; exec sleep 1000'
  echo $$
  sh -c "$say" &
  sh -c "sh -c '$say' & wait" &
  setsid sh -c "$say" &
  (setsid sh -c "sh -c '$say' & exit" &)
  sh -c 'echo $$; kill -STOP $$' &
  sh -c 'trap "" TERM HUP INT; echo $$; while :; do sleep 1000; done' &
  wait`;
const TREE_PIDS = 7;

/** Starts text that prints pids, and waits for `count` of them. */
async function startTree(
  api: Target["api"],
  text: string,
  count: number,
  ...args: readonly string[]
) {
  const id = await api.start(["sh", "-c", text, "sh", ...args]);
  using reader = api.outputs(id, { follow: true });
  let pids: string[] = [];
  while (pids.length < count) {
    assert(await reader.next(), "the tree ended before it stood");
    pids = reader.text.split("\n").slice(0, -1);
  }
  return { id, pids };
}

export const killProcessCases: readonly ContractCase[] = [
  {
    id: "kill.exit-code",
    line: "SIGKILL at once; answers with the real exit code",
    async run({ api }) {
      const id = await api.start(["sh", "-c", 'trap "exit 5" TERM; while :; do sleep 1000; done']);
      assertEquals(await api.kill(id), 137);
      const process = await api.get(id);
      assertEquals([process.status, process.exitCode], [ProcessStatus.TERMINATED, 137]);
      assert(process.finishedAt !== undefined);
    },
  },
  {
    id: "kill.tree",
    line: "the leader and every descendant: group, session, setsid'd, double-forked, stopped",
    async run({ api }) {
      const { id, pids } = await startTree(api, TREE, TREE_PIDS);
      assertEquals(await alivePids(api, pids), pids);
      assertEquals(await api.kill(id), 137);
      assertEquals(await alivePids(api, pids), []);
    },
  },
  {
    id: "kill.storm",
    line: "forks during the kill",
    async run({ api }) {
      for (let round = 0; round < 3; round++) {
        const text =
          "echo up; while :; do sleep 1000 & setsid sleep 1000 & [ $((i += 1)) -lt 60 ] " +
          "|| { wait $!; }; done";
        const id = await api.start(["sh", "-c", text]);
        using reader = api.outputs(id, { follow: true });
        await reader.until("up\n");
        assertEquals(await api.kill(id), 137);
        const left = await api.sh(
          'grep -lszx "ATEENV_PROCESS_ID=$1" /proc/[0-9]*/environ; :',
          id,
        );
        assertEquals(left, "");
      }
    },
  },
  {
    id: "kill.followers",
    line: "followers of a killed process get the last bytes and OK",
    async run({ api }) {
      const id = await api.start(["sh", "-c", "echo last; exec sleep 1000"]);
      using reader = api.outputs(id, { follow: true });
      await reader.until("last\n");
      await api.kill(id);
      assertEquals((await reader.rest()).text, "last\n");
    },
  },
  {
    id: "kill.together",
    line: "50 kills at once share their scans: all get the same code",
    async run({ api }) {
      const id = await api.start(["sleep", "1000"]);
      const codes = await Promise.all(Array.from({ length: 50 }, () => api.kill(id)));
      assertEquals(new Set(codes), new Set([137]));
      const ids = await Promise.all(Array.from({ length: 12 }, () => api.start(["sleep", "1000"])));
      assertEquals(await Promise.all(ids.map((each) => api.kill(each))), ids.map(() => 137));
    },
  },
  {
    id: "kill.finished",
    line: "a finished process: OK and its stored code, but its surviving descendants are killed",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const text = "setsid sh -c 'echo $$; exec sleep 1000' & sh -c 'echo $$; exec sleep 1000' & " +
        'read _ <"$1"; exit 3';
      const { id, pids } = await startTree(api, text, 2, gate.path);
      await gate.open();
      assertEquals((await api.finished(id)).exitCode, 3);
      assertEquals(await alivePids(api, pids), pids);
      assertEquals(await api.kill(id), 3);
      assertEquals(await alivePids(api, pids), []);
      assertEquals(await api.kill(id), 3);
      assertEquals((await api.get(id)).status, ProcessStatus.FAILED);
    },
  },
  {
    id: "kill.race",
    line: "a race with the natural exit keeps whatever the kernel reported",
    async run({ api }) {
      for (let round = 0; round < 30; round++) {
        const id = await api.start(["sh", "-c", "exit 3"]);
        const answered = await api.kill(id);
        const process = await api.get(id);
        assertEquals(process.exitCode, answered);
        assertEquals(
          [process.status, answered],
          answered === 3 ? [ProcessStatus.FAILED, 3] : [ProcessStatus.TERMINATED, 137],
        );
      }
    },
  },
  {
    id: "kill.others",
    line: "never touches another process's tree",
    async run({ api }) {
      const [first, second] = [
        await startTree(api, TREE, TREE_PIDS),
        await startTree(api, TREE, TREE_PIDS),
      ];
      await api.kill(first.id);
      assertEquals(await alivePids(api, second.pids), second.pids);
      assertEquals((await api.get(second.id)).status, ProcessStatus.RUNNING);
      await api.kill(second.id);
      assertEquals(await alivePids(api, second.pids), []);
    },
  },
  {
    id: "kill.grace",
    line: "with --kill-grace: SIGTERM first, then SIGKILL",
    settings: { flags: ["--kill-grace", "2s"] },
    async run({ api }) {
      const polite = await api.start([
        "sh",
        "-c",
        'trap "echo bye; exit 5" TERM; echo up; while :; do sleep 0.05; done',
      ]);
      using reader = api.outputs(polite, { follow: true });
      await reader.until("up\n");
      assertEquals(await api.kill(polite), 5);
      assertEquals((await reader.rest()).text, "up\nbye\n");
      assertEquals((await api.get(polite)).status, ProcessStatus.FAILED);
      const deaf = await startTree(api, 'trap "" TERM; echo $$; while :; do sleep 1; done', 1);
      assertEquals(await api.kill(deaf.id), 137);
      assertEquals(await alivePids(api, deaf.pids), []);
    },
  },
  {
    id: "kill.scoped-run",
    line: "works in both modes of --allow-run",
    settings: { flags: ["--allow-run", "sh,sleep,kill,grep,mkfifo,pwd"] },
    async run({ api }) {
      const { id, pids } = await startTree(api, TREE, TREE_PIDS);
      assertEquals(await api.kill(id), 137);
      assertEquals(await alivePids(api, pids), []);
    },
  },
  {
    id: "kill.no-descriptors",
    line: "still works when file descriptors have run out; RESOURCE_EXHAUSTED before; usable after",
    settings: { flags: ["--max-processes", "0"], before: "ulimit -n 256" },
    async run({ api }) {
      const ids: string[] = [];
      let refused: { code?: number } | undefined;
      while (refused === undefined && ids.length < 300) {
        await api.start(["sleep", "1000"]).then((id) => ids.push(id), (error) => refused = error);
      }
      assertEquals(refused?.code, status.RESOURCE_EXHAUSTED);
      // One with none left, then the others.
      assertEquals(await api.kill(ids.pop()!), 137);
      assertEquals(await Promise.all(ids.map((id) => api.kill(id))), ids.map(() => 137));
      assertEquals((await api.run(["echo", "again"])).text, "again\n");
    },
  },
  {
    id: "kill.timeout",
    line: "--process-timeout: killed with its tree, TERMINATED, 137, and the log says why",
    settings: { flags: ["--process-timeout", "500ms"] },
    async run({ api, agent }) {
      const { id, pids } = await startTree(
        api,
        "setsid sh -c 'echo $$; exec sleep 1000' & wait",
        1,
      );
      const process = await api.finished(id);
      assertEquals([process.status, process.exitCode], [ProcessStatus.TERMINATED, 137]);
      assertEquals(await api.kill(id), 137);
      assertEquals(await alivePids(api, pids), []);
      assert(agent.logLines.some((line) => /timeout|longer/.test(JSON.stringify(line))));
      assertEquals((await api.run(["true"])).process.exitCode, 0);
    },
  },
  {
    id: "kill.unknown",
    line: "NOT_FOUND for an id that there is not",
    run: async ({ api }) => void await rejectsWith(api.kill("x".repeat(2000)), status.NOT_FOUND),
  },
];
