// An agent in this process, with throw-away directories, for tests of several rooms together.
import { type Agent, createAgent } from "../../src/agent.ts";
import { type AgentConfig, parseConfig } from "../../src/config.ts";
import { createLogger } from "../../src/log.ts";
import { createStateDir, createTempDir } from "./state_dir.ts";

/** The agent of {@linkcode startAgent}. */
export interface InProcessAgent extends AsyncDisposable {
  readonly agent: Agent;
  readonly address: string;
  readonly workspace: string;
  readonly stateDir: string;
  /** Log lines so far, parsed. */
  readonly logLines: readonly Record<string, unknown>[];
}

/** The config of these flags, as the command line would give it. */
export function configOf(args: readonly string[]): AgentConfig {
  const command = parseConfig(args, () => undefined);
  if (command.action !== "serve") throw new Error(JSON.stringify(command));
  return command.config;
}

/** Starts an agent on a free port of loopback; all it leaves is removed when it is disposed. */
export async function startAgent(...flags: string[]): Promise<InProcessAgent> {
  await using parts = new AsyncDisposableStack();
  const workspace = parts.use(await createTempDir()).path;
  const stateDir = parts.use(await createStateDir()).path;
  const logLines: Record<string, unknown>[] = [];
  const log = createLogger("debug", (line) => logLines.push(JSON.parse(line)));
  const agent = parts.use(
    await createAgent(
      configOf([
        ...["--listen", "127.0.0.1:0", "--workspace", workspace, "--state-dir", stateDir],
        ...flags,
      ]),
      log,
    ),
  );
  const owned = parts.move();
  return {
    agent,
    address: agent.addresses[0]!,
    workspace,
    stateDir,
    logLines,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
