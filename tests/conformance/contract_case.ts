// What one row of the contract table is. Knows no server: cases get theirs from contract_test.ts.
import type { AgentApi } from "../helpers/agent_api.ts";
import type { AgentProcess, AgentProcessOptions } from "../helpers/agent_process.ts";

/** The server that a case runs against. */
export interface Target {
  /** `host:port` */
  readonly address: string;
  readonly api: AgentApi;
  /** The workspace as the server's processes see it. */
  readonly root: string;
  /** Directory of this case below the workspace, relative to it; it exists. */
  readonly dir: string;
  /** The workspace as this test sees it, where it shares a file system with the server. */
  readonly workspace: string | undefined;
  /**
   * The process behind it.
   * @throws {Error} in a case without `settings`, which must run against any server
   */
  readonly agent: AgentProcess;
}

/** One line of the contract, and how to see that it holds. */
export interface ContractCase {
  /** `call.what` */
  readonly id: string;
  /** The line, in short. */
  readonly line: string;
  /** Settings that the case demands, and so an agent of its own. */
  readonly settings?: AgentProcessOptions;
  /** A case about starting and ending: it starts its agents itself, and gets no target. */
  readonly lifecycle?: true;
  run(target: Target): Promise<void>;
}
