// Records and spools survive the death of the agent; the state directory is one agent's.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { AgentStartError, startAgentProcess } from "../../helpers/agent_process.ts";
import { createTempDir, type TemporaryDirectory } from "../../helpers/state_dir.ts";
import { alivePids } from "../alive.ts";
import type { ContractCase } from "../contract_case.ts";

/** Two directories that outlive the agents of a case. */
async function createPlace() {
  const dirs: TemporaryDirectory[] = [await createTempDir(), await createTempDir()];
  await Deno.chmod(dirs[1]!.path, 0o700);
  return {
    workspace: dirs[0]!.path,
    stateDir: dirs[1]!.path,
    async [Symbol.asyncDispose]() {
      for (const dir of dirs) await dir[Symbol.asyncDispose]();
    },
  };
}

export const restartCases: readonly ContractCase[] = [
  {
    id: "restart.finished",
    line: "finished processes are still there with their output, after a stop and after kill -9",
    lifecycle: true,
    async run() {
      await using place = await createPlace();
      let before;
      {
        await using agent = await startAgentProcess(place);
        using api = new AgentApi(agent.address);
        before = (await api.run(["sh", "-c", "seq 1 100000; echo e >&2; exit 3"])).process;
      }
      for (let round = 0; round < 2; round++) {
        await using agent = await startAgentProcess(place);
        using api = new AgentApi(agent.address);
        const after = await api.get(before.processId);
        assertEquals([after.status, after.exitCode], [ProcessStatus.FAILED, 3]);
        assertEquals(after.startedAt?.seconds, before.startedAt?.seconds);
        assertEquals(after.finishedAt?.seconds, before.finishedAt?.seconds);
        for (const follow of [false, true]) {
          using reader = api.outputs(before.processId, { follow });
          await reader.rest();
          assertEquals(reader.text.split("\n").length, 100_001);
          assertEquals(reader.stderr.length, 2);
        }
        using reader = api.outputs(before.processId, { stdoutOffset: 588_888 });
        assertEquals((await reader.rest()).text, "100000\n");
        assertEquals(await api.kill(before.processId), 3);
        await agent.crash();
      }
    },
  },
  {
    id: "restart.running",
    line:
      "what was running when the agent died is killed at the next start: TERMINATED, 137, its output",
    lifecycle: true,
    async run() {
      await using place = await createPlace();
      let id, pids: string[];
      {
        await using agent = await startAgentProcess(place);
        using api = new AgentApi(agent.address);
        id = await api.start(["sh", "-c", "setsid sleep 1000 & echo $$ $!; wait"]);
        using reader = api.outputs(id, { follow: true });
        await reader.until("\n");
        pids = reader.text.trim().split(" ");
        await agent.crash();
      }
      await using agent = await startAgentProcess(place);
      using api = new AgentApi(agent.address);
      const process = await api.get(id);
      assertEquals([process.status, process.exitCode], [ProcessStatus.TERMINATED, 137]);
      assert(process.finishedAt !== undefined);
      using reader = api.outputs(id, { follow: true });
      assertEquals((await reader.rest()).text, `${pids.join(" ")}\n`);
      assertEquals(await alivePids(api, pids), []);
      assertEquals(await api.kill(id), 137);
    },
  },
  {
    id: "restart.burst",
    line: "kill -9 in mid-burst: what is served afterwards is a prefix of what the child wrote",
    lifecycle: true,
    async run() {
      await using place = await createPlace();
      let id, seen;
      {
        await using agent = await startAgentProcess(place);
        using api = new AgentApi(agent.address);
        id = await api.start(["seq", "1", "1000000000"]);
        using reader = api.outputs(id, { follow: true });
        for (let count = 0; count < 50; count++) await reader.next();
        seen = reader.stdout.length;
        await agent.crash();
      }
      await using agent = await startAgentProcess(place);
      using api = new AgentApi(agent.address);
      assertEquals((await api.get(id)).exitCode, 137);
      using reader = api.outputs(id, { follow: true });
      const lines = (await reader.rest()).text.split("\n").slice(0, -1);
      const wrong = lines.findIndex((line, index) => line !== `${index + 1}`);
      assertEquals(wrong, -1);
      assert(seen > 0 && lines.length > 0);
    },
  },
  {
    id: "restart.upload",
    line: "an upload cut by kill -9: the old file, and no temporary file after the next start",
    lifecycle: true,
    async run() {
      await using place = await createPlace();
      {
        await using agent = await startAgentProcess(place);
        using api = new AgentApi(agent.address);
        await api.write("file", "old");
        const upload = api.upload();
        await upload.send({ path: "file", chunk: new Uint8Array(1_000_000) });
        await upload.send({ chunk: new Uint8Array(1_000_000) });
        // It has been taken up once another call behind it on the connection is answered.
        assertEquals(await api.readText("file"), "old");
        await agent.crash();
        await rejectsWith(upload.answer, status.UNAVAILABLE);
      }
      await using agent = await startAgentProcess(place);
      using api = new AgentApi(agent.address);
      assertEquals(await api.readText("file"), "old");
      assertEquals([...Deno.readDirSync(place.workspace)].map(({ name }) => name), ["file"]);
      assertEquals([...Deno.readDirSync(`${place.stateDir}/tmp`)], []);
    },
  },
  {
    id: "restart.format",
    line: "the state directory carries a format version; an unknown one is refused, not deleted",
    lifecycle: true,
    async run() {
      await using place = await createPlace();
      let id;
      {
        await using agent = await startAgentProcess(place);
        using api = new AgentApi(agent.address);
        id = (await api.run(["echo", "kept"])).process.processId;
      }
      const format = await Deno.readTextFile(`${place.stateDir}/format`);
      await Deno.writeTextFile(`${place.stateDir}/format`, "999\n");
      const error = await assertRejects(async () => {
        await using _ = await startAgentProcess(place);
      }, AgentStartError);
      assert(error.code !== 0 && error.stderr.includes("999"), error.stderr);
      await Deno.writeTextFile(`${place.stateDir}/format`, format);
      await using agent = await startAgentProcess(place);
      using api = new AgentApi(agent.address);
      using reader = api.outputs(id);
      assertEquals((await reader.rest()).text, "kept\n");
    },
  },
  {
    id: "restart.torn",
    line:
      "foreign or torn files in the state directory are set aside, and keep nobody from starting",
    lifecycle: true,
    async run() {
      await using place = await createPlace();
      let id;
      {
        await using agent = await startAgentProcess(place);
        using api = new AgentApi(agent.address);
        id = (await api.run(["echo", "kept"])).process.processId;
      }
      const processes = `${place.stateDir}/processes`;
      await Deno.writeTextFile(`${processes}/foreign-file`, "x");
      await Deno.mkdir(`${processes}/foreign-dir`);
      await Deno.mkdir(`${processes}/${"0".repeat(32)}`);
      await Deno.writeTextFile(`${processes}/${"0".repeat(32)}/started.json`, '{"proc');
      await using agent = await startAgentProcess(place);
      using api = new AgentApi(agent.address);
      assertEquals((await api.get(id)).status, ProcessStatus.COMPLETED);
      await rejectsWith(api.get("0".repeat(32)), status.NOT_FOUND);
      assert(agent.logLines.some((line) => JSON.stringify(line).includes("aside")), "not logged");
    },
  },
  {
    id: "restart.second-agent",
    line: "two agents on one state directory: the second refuses to start",
    lifecycle: true,
    async run() {
      await using place = await createPlace();
      await using agent = await startAgentProcess(place);
      using api = new AgentApi(agent.address);
      const id = await api.start(["sleep", "1000"]);
      const error = await assertRejects(async () => {
        await using _ = await startAgentProcess(place);
      }, AgentStartError);
      assert(error.code !== 0 && error.stderr.includes(place.stateDir), error.stderr);
      assertEquals((await api.get(id)).status, ProcessStatus.RUNNING);
      await api.kill(id);
    },
  },
  {
    id: "restart.not-private",
    line: "a default state directory below a shared /tmp must be ours, 0700 and no link",
    lifecycle: true,
    async run() {
      await using tmp = await createTempDir();
      await using elsewhere = await createTempDir();
      const { uid } = await Deno.stat(tmp.path);
      const base = `${tmp.path}/ateenv-${uid}`;
      const script = new URL("../../../src/start.sh", import.meta.url).pathname;
      // Whoever may write /var/lib has a private default there: taken away, where that can be done.
      const hide = uid === 0 ? "mount -t tmpfs -o ro tmpfs /var/lib && " : "";
      const text = `${hide}exec sh "$@"`;
      const args = ["sh", "-c", text, "sh", script, "--listen", "127.0.0.1:1", "--workspace"];
      const start = async () => {
        const { code, stderr } = await new Deno.Command(uid === 0 ? "unshare" : "env", {
          args: [...(uid === 0 ? ["-m"] : []), ...args, `${tmp.path}/w`],
          env: { TMPDIR: tmp.path, XDG_STATE_HOME: "/dev/null/x" },
          stdout: "null",
          stderr: "piped",
        }).output();
        const message = new TextDecoder().decode(stderr);
        assert(code !== 0 && message.includes(base), message);
      };
      await Deno.symlink(elsewhere.path, base);
      await start();
      assertEquals([...Deno.readDirSync(elsewhere.path)], []);
      await Deno.remove(base);
      await Deno.mkdir(base);
      await Deno.chmod(base, 0o755);
      await start();
      assertEquals([...Deno.readDirSync(base)], []);
    },
  },
];
