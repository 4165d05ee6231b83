// Checks what a client wants to start, before anything is touched.
// Pure: must not look at the disk; a cwd is judged by the spawn.
import { AgentError } from "../errors.ts";
import type { SpawnRequest } from "./spawner.ts";

/** What a client asks for. */
export interface StartRequest {
  readonly command: readonly string[];
  /** Empty: the workspace. Relative: below the workspace. */
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

/** The variable that each child carries, and its children inherit: how a tree is found again. */
export const MARKER_NAME = "ATEENV_PROCESS_ID";

/**
 * The request as it can be spawned, the marker not yet in its environment.
 * @throws AgentError `invalid-argument`
 */
export function parseStartRequest(request: StartRequest, workspace: string): SpawnRequest {
  const { command, cwd, env } = request;
  if (command.length === 0 || command[0] === "") throw invalid("command cannot be empty");
  if (command.some(hasNul)) throw invalid("command cannot hold a NUL byte");
  if (hasNul(cwd)) throw invalid("cwd cannot hold a NUL byte");
  for (const [name, value] of Object.entries(env)) checkVariable(name, value);
  return {
    command,
    cwd: cwd === "" ? workspace : cwd.startsWith("/") ? cwd : `${workspace}/${cwd}`,
    env,
  };
}

function checkVariable(name: string, value: string): void {
  if (name === "") throw invalid("the name of an environment variable cannot be empty");
  if (hasNul(name)) throw invalid("the name of an environment variable cannot hold a NUL byte");
  if (name.includes("=")) {
    throw invalid(`the name of an environment variable cannot hold "=": ${JSON.stringify(name)}`);
  }
  if (name === MARKER_NAME) throw invalid(`${MARKER_NAME} is set by the agent`);
  if (hasNul(value)) throw invalid(`environment variable ${name} cannot hold a NUL byte`);
}

function hasNul(text: string): boolean {
  return text.includes("\0");
}

function invalid(message: string): AgentError {
  return new AgentError("invalid-argument", message);
}
