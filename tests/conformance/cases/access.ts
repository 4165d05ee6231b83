// Who may call: token, TLS, mTLS, and where the agent does not start without one.
import { assert, assertEquals } from "@std/assert";
import { credentials, status } from "@grpc/grpc-js";
import { HealthCheckResponse_ServingStatus as ServingStatus } from "../../../gen/grpc/health/v1/health_pb.ts";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { createTempDir } from "../../helpers/state_dir.ts";
import type { ContractCase } from "../contract_case.ts";
import { httpGet } from "../http_get.ts";
import { createCertificates } from "../certificates.ts";
import { checkHealth } from "./health.ts";
import { doesNotStart } from "./settings.ts";

const { NOT_FOUND, UNAUTHENTICATED, UNAVAILABLE } = status;
const TOKEN = "t0ken-of-the-suite";

export const accessCases: readonly ContractCase[] = [
  {
    id: "auth.token",
    line:
      "UNAUTHENTICATED without the bearer token or with a wrong one; readyz and health are open",
    lifecycle: true,
    async run() {
      await using dir = await createTempDir();
      const file = `${dir.path}/token`;
      await Deno.writeTextFile(file, `${TOKEN}\n`);
      await using agent = await startAgentProcess({ flags: ["--token-file", file] });
      using good = new AgentApi(agent.address, { token: TOKEN });
      using none = new AgentApi(agent.address);
      const { text } = await good.run(["env"]);
      assert(!text.includes(TOKEN));
      const tokens = [`${TOKEN}x`, TOKEN.slice(1), TOKEN.toUpperCase(), "", "x".repeat(3000)];
      for (const token of tokens) {
        using wrong = new AgentApi(agent.address, { token });
        const error = await rejectsWith(wrong.get("x"), UNAUTHENTICATED);
        assert(!error.details.includes(TOKEN) && !error.details.includes("t0ken"), error.details);
      }
      await rejectsWith(none.get("x"), UNAUTHENTICATED);
      await rejectsWith(none.start(["true"]), UNAUTHENTICATED);
      await rejectsWith(none.outputs("x", { follow: true }).rest(), UNAUTHENTICATED);
      await rejectsWith(none.kill("x"), UNAUTHENTICATED);
      await rejectsWith(none.read("x"), UNAUTHENTICATED);
      await rejectsWith(none.write("x", "X"), UNAUTHENTICATED);
      const basic = { metadata: { authorization: `Basic ${TOKEN}` } };
      await rejectsWith(none.get("x", basic), UNAUTHENTICATED);
      assertEquals([...Deno.readDirSync(agent.workspace)], []);
      assertEquals(await checkHealth(none, ""), ServingStatus.SERVING);
      assertEquals((await httpGet(agent.address, "/readyz")).status, 200);
      assertEquals((await httpGet(agent.address, "/healthz")).status, 200);
      assertEquals((await httpGet(agent.address, "/metrics")).status, 401);
      const authorization = `Bearer ${TOKEN}`;
      assertEquals((await httpGet(agent.address, "/metrics", { authorization })).status, 200);
      await agent.stop();
      assert(!JSON.stringify(agent.logLines).includes(TOKEN), "the token is in the log");
    },
  },
  {
    id: "auth.token-changes",
    line: "the token file is re-read when it changes",
    lifecycle: true,
    async run() {
      await using dir = await createTempDir();
      const file = `${dir.path}/token`;
      await Deno.writeTextFile(file, "first-token");
      await using agent = await startAgentProcess({ flags: ["--token-file", file] });
      using first = new AgentApi(agent.address, { token: "first-token" });
      using second = new AgentApi(agent.address, { token: "second-token" });
      await rejectsWith(first.get("x"), NOT_FOUND);
      await rejectsWith(second.get("x"), UNAUTHENTICATED);
      // As mounted secrets change: another file under the same name.
      await Deno.writeTextFile(`${file}.new`, "second-token");
      await Deno.rename(`${file}.new`, file);
      // No event tells a client when; the agent may look again at most every so often.
      const deadline = Date.now() + 30_000;
      for (;;) {
        const code = await second.get("x").catch((error) => error.code);
        if (code === NOT_FOUND) break;
        assertEquals(code, UNAUTHENTICATED);
        assert(Date.now() < deadline, "the new token is never taken");
      }
      await rejectsWith(first.get("x"), UNAUTHENTICATED);
    },
  },
  {
    id: "auth.beyond-loopback",
    line:
      "beyond loopback the agent does not start without a token, mTLS, or an explicit `--auth none`",
    lifecycle: true,
    async run() {
      await doesNotStart(["--listen", "0.0.0.0:0"], "--auth");
      await using agent = await startAgentProcess({
        flags: ["--listen", "0.0.0.0:0", "--auth", "none"],
      });
      const address = agent.address.replace("0.0.0.0", "127.0.0.1");
      using api = new AgentApi(address);
      assertEquals((await api.run(["echo", "x"])).text, "x\n");
    },
  },
  {
    id: "auth.tls",
    line: "TLS from PEM files; with a client CA (mTLS) nobody without its certificate",
    lifecycle: true,
    async run() {
      await using dir = await createTempDir();
      const pem = await createCertificates(dir.path);
      const server = ["--tls-cert", pem.certPath, "--tls-key", pem.keyPath];
      {
        await using agent = await startAgentProcess({ flags: server });
        using api = new AgentApi(agent.address, { credentials: credentials.createSsl(pem.ca) });
        assertEquals((await api.run(["echo", "over TLS"])).text, "over TLS\n");
      }
      await using agent = await startAgentProcess({
        flags: [...server, "--tls-client-ca", pem.caPath],
      });
      using known = new AgentApi(agent.address, {
        credentials: credentials.createSsl(pem.ca, pem.clientKey, pem.clientCert),
      });
      assertEquals((await known.run(["echo", "known"])).text, "known\n");
      using unknown = new AgentApi(agent.address, { credentials: credentials.createSsl(pem.ca) });
      const code = await unknown.get("x").catch((error) => error.code);
      assert(code === UNAUTHENTICATED || code === UNAVAILABLE, `${code}`);
    },
  },
  {
    id: "auth.run-as",
    line:
      "with `--run-as` anywhere not without a token or an explicit `--auth none`; refused where it may not",
    lifecycle: true,
    async run() {
      await doesNotStart(["--run-as", "65534"], "--auth");
      const flags = ["--run-as", "65534:65534", "--auth", "none"];
      // Only the superuser (or who has the two capabilities) may start others.
      if (Deno.uid() !== 0) return await doesNotStart(flags, "--run-as");
      await using agent = await startAgentProcess({ flags });
      await Deno.chmod(agent.workspace, 0o777);
      using api = new AgentApi(agent.address);
      const { text } = await api.run(["sh", "-c", "id -u; id -g"]);
      assertEquals(text, "65534\n65534\n");
      const tree = "setsid sleep 1000 & echo up; wait";
      const id = await api.start(["sh", "-c", tree]);
      using reader = api.outputs(id, { follow: true });
      await reader.until("up\n");
      assertEquals(await api.kill(id), 137);
      // Neither the agent's state nor its own files are within its reach.
      const look = await api.run(["ls", agent.stateDir]);
      assert(look.process.exitCode !== 0, look.text);
    },
  },
];
