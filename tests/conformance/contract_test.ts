// The contract as a table of cases, run against the real agent, or against any server of this API that
// ATEENV_TARGET (host:port) names. ATEENV_TARGET_WORKSPACE is that server's workspace, where this test
// can see it. Cases that demand their own settings are shown as ignored there.
import { assert } from "@std/assert";
import { AgentApi } from "../helpers/agent_api.ts";
import { type AgentProcess, startAgentProcess } from "../helpers/agent_process.ts";
import type { ContractCase, Target } from "./contract_case.ts";
import { fileErrorCases } from "./cases/file_errors.ts";
import { filePathCases } from "./cases/file_paths.ts";
import { fileRootCases } from "./cases/file_roots.ts";
import { getProcessCases } from "./cases/get_process.ts";
import { healthCases } from "./cases/health.ts";
import { killProcessCases } from "./cases/kill_process.ts";
import { outputReaderCases } from "./cases/output_readers.ts";
import { outputCases } from "./cases/outputs.ts";
import { accessCases } from "./cases/access.ts";
import { portCases } from "./cases/port.ts";
import { readFileCases } from "./cases/read_file.ts";
import { restartCases } from "./cases/restart.ts";
import { settingsCases } from "./cases/settings.ts";
import { shutdownCases } from "./cases/shutdown.ts";
import { startProcessCases } from "./cases/start_process.ts";
import { startRefusedCases } from "./cases/start_refused.ts";
import { writeFileCases } from "./cases/write_file.ts";
import { writeModeCases } from "./cases/write_modes.ts";

const CASES: readonly ContractCase[] = [
  ...startProcessCases,
  ...startRefusedCases,
  ...getProcessCases,
  ...outputCases,
  ...outputReaderCases,
  ...killProcessCases,
  ...filePathCases,
  ...fileRootCases,
  ...fileErrorCases,
  ...readFileCases,
  ...writeFileCases,
  ...writeModeCases,
  ...portCases,
  ...healthCases,
  ...accessCases,
  ...settingsCases,
  ...restartCases,
  ...shutdownCases,
];

/** Milliseconds after which a case hangs. */
const CASE_TIMEOUT_MS = 120_000;

/** Variables of the agent that must not reach a child, beside those that have a meaning at start. */
const NOISE = {
  ATEENV_SECRET: "x",
  PORT: "1",
  WORKSPACE: "/nonexistent",
  WORKDIR: "/nonexistent",
  LOG_DIR: "/nonexistent",
  DENO_SECRET: "x",
  OTEL_DENO: "false",
  npm_config_secret: "x",
  INIT_CWD: "/nonexistent",
};

const TARGET = Deno.env.get("ATEENV_TARGET") || undefined;
const TARGET_WORKSPACE = Deno.env.get("ATEENV_TARGET_WORKSPACE") || undefined;

/** Directory of one run below the workspace: a foreign server may have been used before. */
const RUN_DIR = `conformance-${crypto.randomUUID().slice(0, 8)}`;

let agent: AgentProcess | undefined;
let shared: Omit<Target, "api" | "dir" | "agent"> | undefined;

Deno.test.beforeAll(async () => {
  if (TARGET === undefined) agent = await startAgentProcess({ env: NOISE, before: "umask 077" });
  const address = TARGET ?? agent!.address;
  using api = new AgentApi(address);
  const root = await api.sh("pwd -P");
  shared = { address, root, workspace: agent?.workspace ?? TARGET_WORKSPACE };
});

Deno.test.afterAll(async () => {
  if (shared !== undefined) {
    using api = new AgentApi(shared.address);
    await api.sh('rm -rf "$1"', RUN_DIR);
  }
  await agent?.[Symbol.asyncDispose]();
});

async function runOnShared(row: ContractCase): Promise<void> {
  assert(shared !== undefined);
  const dir = `${RUN_DIR}/${row.id}`;
  using api = new AgentApi(shared.address);
  await api.sh('mkdir -p "$1"', dir);
  await row.run({
    ...shared,
    api,
    dir,
    get agent(): never {
      throw new Error("this case has no settings: it must run against any server");
    },
  });
}

async function runOnItsOwn(row: ContractCase): Promise<void> {
  await using agent = await startAgentProcess(row.settings);
  using api = new AgentApi(agent.address);
  const { address, workspace } = agent;
  await Deno.mkdir(`${workspace}/case`);
  await row.run({ address, api, agent, root: workspace, dir: "case", workspace });
}

for (const row of CASES) {
  const needsOwn = row.settings !== undefined || row.lifecycle === true;
  Deno.test({
    name: `${row.id}: ${row.line}`,
    ignore: needsOwn && TARGET !== undefined,
    timeout: CASE_TIMEOUT_MS,
    async fn() {
      // A lifecycle case looks at no target.
      if (row.lifecycle) await row.run(undefined as never);
      else if (row.settings !== undefined) await runOnItsOwn(row);
      else await runOnShared(row);
    },
  });
}

Deno.test("each case has an id of its own", { permissions: "none" }, () => {
  const ids = CASES.map(({ id }) => id);
  const twice = ids.filter((id, index) => ids.indexOf(id) !== index);
  assert(twice.length === 0, `twice: ${twice.join(", ")}`);
});
