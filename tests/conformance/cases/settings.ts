// The settings: mistakes, what is switched off, a second way in, and what the log keeps to itself.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { AgentStartError, startAgentProcess } from "../../helpers/agent_process.ts";
import { createTempDir } from "../../helpers/state_dir.ts";
import { runOverUnixSocket } from "../../helpers/unix_client.ts";
import type { ContractCase } from "../contract_case.ts";
import { httpGet } from "../http_get.ts";

const { NOT_FOUND, UNIMPLEMENTED } = status;

/** That the agent refuses to start with a usage error that has these words. */
export async function doesNotStart(flags: readonly string[], ...words: string[]): Promise<void> {
  const error = await assertRejects(async () => {
    await using _ = await startAgentProcess({ flags });
  }, AgentStartError);
  assert(error.code !== 0);
  for (const word of words) assert(error.stderr.includes(word), error.stderr);
}

export const settingsCases: readonly ContractCase[] = [
  {
    id: "port.unix",
    line: "optional unix socket (0600)",
    lifecycle: true,
    async run() {
      await using dir = await createTempDir();
      const path = `${dir.path}/agent.sock`;
      {
        await using agent = await startAgentProcess({ flags: ["--unix", path] });
        assertEquals(await runOverUnixSocket(path, "echo", "over unix"), "over unix\n");
        assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
        assertEquals((await httpGet(agent.address, "/readyz")).status, 200);
      }
      // No socket is left at the end.
      assertEquals([...Deno.readDirSync(dir.path)], []);
    },
  },
  {
    id: "port.disabled-services",
    line: "--enable-process, --enable-filesystem: what is off is UNIMPLEMENTED",
    lifecycle: true,
    async run() {
      {
        await using agent = await startAgentProcess({ flags: ["--enable-process", "false"] });
        using api = new AgentApi(agent.address);
        await rejectsWith(api.start(["true"]), UNIMPLEMENTED);
        await api.write("file", "F");
      }
      await using agent = await startAgentProcess({ env: { ATEENV_ENABLE_FILESYSTEM: "false" } });
      using api = new AgentApi(agent.address);
      await rejectsWith(api.write("file", "F"), UNIMPLEMENTED);
      assertEquals((await api.run(["true"])).process.exitCode, 0);
    },
  },
  {
    id: "settings.mistakes",
    line: "two flags that disagree are an error at start; all mistakes at once",
    lifecycle: true,
    async run() {
      await doesNotStart(["--retain", "5", "--retain", "6"], "--retain");
      await doesNotStart(
        ["--output-limit", "1KiB", "--max-processes", "many", "--no-such-flag"],
        "--output-limit",
        "--max-processes",
        "--no-such-flag",
      );
      await doesNotStart(["--auth", "token"], "--token-file");
    },
  },
  {
    id: "log.discreet",
    line: "logs: one JSON object a line, never output, payloads, variables' values or tokens",
    settings: { flags: ["--log-level", "debug"] },
    async run({ api, agent }) {
      const secret = "s3cret-of-the-log-case";
      const env = { SECRET: `${secret}-env` };
      await api.run(["sh", "-c", 'echo "$SECRET"; echo "$SECRET" >&2'], { env });
      await api.write("file", `${secret}-payload`);
      await api.read("file");
      await rejectsWith(
        api.get("x", { metadata: { authorization: `Bearer ${secret}` } }),
        NOT_FOUND,
      );
      await agent.stop();
      const lines = agent.logLines;
      assert(lines.length >= 5, "debug says nothing of the calls");
      for (const line of lines) {
        const text = JSON.stringify(line);
        assert(typeof line.msg === "string" && typeof line.level === "string", text);
        assert(!text.includes(secret), text);
      }
    },
  },
  {
    id: "settings.answers",
    line: "`--check-policy` prints the self-test and exits; --help and --version answer",
    lifecycle: true,
    async run() {
      await using dir = await createTempDir();
      const script = new URL("../../../src/start.sh", import.meta.url).pathname;
      const ask = async (...args: string[]) => {
        const { code, stdout, stderr } = await new Deno.Command("sh", {
          args: [script, ...args],
          cwd: dir.path,
        }).output();
        const text = new TextDecoder().decode(stdout);
        assertEquals(code, 0, `${args}: ${text}${new TextDecoder().decode(stderr)}`);
        return text;
      };
      assert(/^ateenvd \d+\.\d+\.\d+\S*\n$/.test(await ask("--version")));
      const help = await ask("--help");
      for (
        const flag of ["--listen", "--workspace", "--allow-run", "--kill-grace", "--check-policy"]
      ) {
        assert(help.includes(flag), flag);
      }
      const listen = ["--listen", "127.0.0.1:0", "--workspace", `${dir.path}/w`];
      const policy = await ask("--check-policy", ...listen, "--state-dir", `${dir.path}/s`);
      assert(policy.length > 0);
    },
  },
];
