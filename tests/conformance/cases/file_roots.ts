// What may be reached: --root, --read-path, and what never may: the state directory and the token.
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { createTempDir } from "../../helpers/state_dir.ts";
import type { ContractCase } from "../contract_case.ts";

const { FAILED_PRECONDITION, PERMISSION_DENIED, NOT_FOUND } = status;

export const fileRootCases: readonly ContractCase[] = [
  {
    id: "root.lifted",
    line: "`--root /` lifts that: the whole file system, relative paths still from the workspace",
    settings: { flags: ["--root", "/"] },
    async run({ api, root, dir }) {
      await using outside = await createTempDir();
      await api.write(`${outside.path}/sub/new`, "N");
      assertEquals(await Deno.readTextFile(`${outside.path}/sub/new`), "N");
      assertEquals(await api.readText("/etc/passwd"), await Deno.readTextFile("/etc/passwd"));
      await api.write(`${dir}/here`, "H");
      assertEquals(await Deno.readTextFile(`${root}/${dir}/here`), "H");
      await rejectsWith(api.read("/no/such"), NOT_FOUND, 'file "/no/such" not found');
    },
  },
  {
    id: "root.not-capable",
    line: "NotCapable: PERMISSION_DENIED (what Deno's scopes never open)",
    settings: { flags: ["--root", "/"] },
    async run({ api }) {
      // Regular files for stat, and nothing that Deno opens without --allow-all.
      await rejectsWith(api.read("/proc/self/environ"), PERMISSION_DENIED);
      await rejectsWith(api.read("/proc/1/status"), PERMISSION_DENIED);
    },
  },
  {
    id: "root.narrower",
    line: "--root: what calls may reach, where that is not the workspace",
    lifecycle: true,
    async run() {
      await using root = await createTempDir();
      await using agent = await startAgentProcess({ flags: ["--root", root.path] });
      using api = new AgentApi(agent.address);
      await api.write(`${root.path}/a`, "A");
      assertEquals(await api.readText(`${root.path}/a`), "A");
      await rejectsWith(
        api.read("relative"),
        PERMISSION_DENIED,
        `access denied: path "relative" is outside sandbox root directory "${root.path}"`,
      );
    },
  },
  {
    id: "root.read-only",
    line: "extra read-only roots can be named (--read-path)",
    lifecycle: true,
    async run() {
      await using extra = await createTempDir();
      await Deno.writeTextFile(`${extra.path}/a`, "A");
      await Deno.symlink("/etc/passwd", `${extra.path}/out`);
      await using agent = await startAgentProcess({ flags: ["--read-path", extra.path] });
      using api = new AgentApi(agent.address);
      assertEquals(await api.readText(`${extra.path}/a`), "A");
      await Deno.symlink(`${extra.path}/a`, `${agent.workspace}/link`);
      assertEquals(await api.readText("link"), "A");
      await rejectsWith(api.write(`${extra.path}/a`, "B"), PERMISSION_DENIED);
      await rejectsWith(api.write(`${extra.path}/b`, "B"), PERMISSION_DENIED);
      await rejectsWith(api.write("link", "B"), PERMISSION_DENIED);
      await rejectsWith(api.read(`${extra.path}/out`), PERMISSION_DENIED);
      assertEquals(await Deno.readTextFile(`${extra.path}/a`), "A");
      assertEquals([...Deno.readDirSync(extra.path)].length, 2);
    },
  },
  {
    id: "root.state-and-token",
    line: "the state directory and the token file cannot be reached, even with `--root /`",
    lifecycle: true,
    async run() {
      await using secrets = await createTempDir();
      const tokenFile = `${secrets.path}/token`;
      await Deno.writeTextFile(tokenFile, "s3cret-token\n");
      await using agent = await startAgentProcess({
        flags: ["--root", "/", "--token-file", tokenFile],
      });
      using api = new AgentApi(agent.address, { token: "s3cret-token" });
      const { process } = await api.run(["echo", "x"]);
      const state = agent.stateDir;
      await Deno.symlink(state, `${agent.workspace}/state-link`);
      await Deno.symlink(tokenFile, `${agent.workspace}/token-link`);
      const spool = `processes/${process.processId}/stdout.0`;
      const paths = [
        tokenFile,
        "token-link",
        `${state}/format`,
        `${state}/${spool}`,
        `state-link/${spool}`,
        `${state}/proc/self/environ`,
        `${state}/new`,
        `${state}/../${state.split("/").pop()}/format`,
      ];
      for (const path of paths) {
        const code = await api.read(path).then(() => "read", (error) => error.code);
        assert(
          [PERMISSION_DENIED, FAILED_PRECONDITION, NOT_FOUND].includes(code),
          `${path}: ${code}`,
        );
        await rejectsWith(api.write(path, "x"), PERMISSION_DENIED);
      }
      assertEquals(await Deno.readTextFile(tokenFile), "s3cret-token\n");
      assertEquals((await api.run(["echo", "y"])).text, "y\n");
    },
  },
  {
    id: "root.state-inside",
    line: "the state directory cannot be reached where it lies inside the workspace",
    lifecycle: true,
    async run() {
      await using workspace = await createTempDir();
      const stateDir = `${workspace.path}/.state`;
      await using agent = await startAgentProcess({ workspace: workspace.path, stateDir });
      using api = new AgentApi(agent.address);
      await rejectsWith(api.read(".state/format"), PERMISSION_DENIED);
      await rejectsWith(api.write(".state/format", "x"), PERMISSION_DENIED);
      await rejectsWith(api.write(".state/new", "x"), PERMISSION_DENIED);
      await api.write("beside", "B");
      assertEquals(await api.readText("beside"), "B");
    },
  },
];
