// The only user of Deno.Command: leaders with their pipes, and the two helpers of a kill.
// Must not know records, spools or trees.
import { AgentError, osErrorCode } from "../errors.ts";
import type { ExitReport } from "./process_info.ts";
import type { CannotRun, SpawnedChild, Spawner, SpawnRequest } from "./spawner.ts";

/** Another user for the children. */
export interface RunAs {
  readonly uid: number;
  readonly gid: number;
}

/** How often, and how long in all, a text that is busy is tried again. */
const BUSY_PAUSES_MS = [1, 2, 5, 10, 20, 50];

/**
 * A spawner over Deno.Command. Children inherit the agent's environment unread, values that are not
 * UTF-8 included: the agent cleans its own at start.
 */
export function createDenoSpawner(runAs?: RunAs): Spawner {
  const start = (request: SpawnRequest) => spawnLeader(request, runAs);
  return {
    async spawn(request) {
      for (let attempt = 0;; attempt++) {
        try {
          return start(request);
        } catch (error) {
          const pauseMs = BUSY_PAUSES_MS[attempt];
          // A child that was being started while the agent (or anyone) had this file open for writing
          // holds that descriptor until its own exec: the kernel then says ETXTBSY, and gives no event.
          if (osErrorCode(error) === "ETXTBSY" && pauseMs !== undefined) {
            await new Promise((resolve) => setTimeout(resolve, pauseMs));
            continue;
          }
          return judge(error, request, start);
        }
      }
    },
  };
}

function spawnLeader(request: SpawnRequest, runAs: RunAs | undefined): SpawnedChild {
  const [program, ...args] = request.command;
  const child = new Deno.Command(program!, {
    args,
    cwd: request.cwd,
    env: { ...request.env },
    ...(runAs ?? {}),
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  return {
    pid: child.pid,
    stdout: child.stdout,
    stderr: child.stderr,
    exit: exitOf(child),
    signal(signal) {
      try {
        child.kill(signal);
      } catch {
        // Gone already.
      }
    },
  };
}

async function exitOf(child: Deno.ChildProcess): Promise<ExitReport> {
  try {
    const { code, signal } = await child.status;
    return { code, signal };
  } catch (error) {
    // Deno has no name for real-time signals and rejects with their number.
    const number = error instanceof TypeError && /^Invalid signal: (\d+)$/.exec(error.message)?.[1];
    if (!number) throw error;
    return { code: 128 + Number(number), signal: number };
  }
}

/**
 * What a failed spawn means. Decides on the class and code of the error, but for two pairs that Deno
 * tells apart by text only (pinned by tests): a missing cwd, and a program that a PATH search found.
 * @throws AgentError when it is the call that failed, not the program
 */
function judge(
  error: unknown,
  request: SpawnRequest,
  start: (request: SpawnRequest) => SpawnedChild,
): SpawnedChild | CannotRun {
  const code = osErrorCode(error);
  const message = error instanceof Error ? error.message : "";
  const program = JSON.stringify(request.command[0]);
  const cwd = JSON.stringify(request.cwd);
  switch (code) {
    case "ENOENT":
      if (/: (No such cwd|cwd is not a directory) '/.test(message)) {
        const what = message.includes(": No such cwd '") ? "does not exist" : "is not a directory";
        throw new AgentError("invalid-argument", `cwd ${cwd} ${what}`, { cause: error });
      }
      return judgeMissing(message, request, start);
    case "ENOTDIR":
      if (!canEnter(request, start)) {
        throw new AgentError("invalid-argument", `cwd ${cwd} is not a directory`, { cause: error });
      }
      break;
    case "EACCES":
    case "EPERM":
      if (!canEnter(request, start)) {
        throw new AgentError("permission-denied", `cwd ${cwd} cannot be entered: ${code}`, {
          cause: error,
        });
      }
      break;
    case "NotCapable":
      throw new AgentError(
        "permission-denied",
        `${refusedSubject(message, program)} is not permitted by the agent's policy (--allow-run)`,
        { cause: error },
      );
    case "E2BIG":
      throw new AgentError("invalid-argument", "command and env are too large for the kernel", {
        cause: error,
      });
    case "EINVAL":
      throw new AgentError("invalid-argument", `cannot run ${program}: EINVAL`, { cause: error });
    case "EAGAIN":
    case "ENOMEM":
    case "EMFILE":
    case "ENFILE":
      throw new AgentError("resource-exhausted", `cannot start a process: ${code}`, {
        cause: error,
      });
    case undefined:
      throw new AgentError("internal", `cannot run ${program}`, { cause: error });
  }
  return { exitCode: 126, reason: `cannot run ${program}: ${code}` };
}

/**
 * ENOENT is also what the kernel says of a script whose interpreter is missing, and what the search in
 * PATH says of a file without the x bit.
 */
function judgeMissing(
  message: string,
  request: SpawnRequest,
  start: (request: SpawnRequest) => SpawnedChild,
): SpawnedChild | CannotRun {
  const [name, ...args] = request.command;
  const program = JSON.stringify(name);
  if (name!.includes("/")) {
    const path = name!.startsWith("/") ? name! : `${request.cwd}/${name}`;
    if (!existsAsFile(path, request, start)) {
      return { exitCode: 127, reason: `cannot run ${program}: not found` };
    }
    return { exitCode: 126, reason: `cannot run ${program}: its interpreter is missing (ENOENT)` };
  }
  if (!message.endsWith(": entity not found")) {
    return { exitCode: 126, reason: `cannot run ${program}: its interpreter is missing (ENOENT)` };
  }
  for (const directory of searchPath(request)) {
    try {
      return start({ ...request, command: [`${directory}/${name}`, ...args] });
    } catch (error) {
      if (osErrorCode(error) === "EACCES") {
        return { exitCode: 126, reason: `cannot run ${program}: EACCES` };
      }
    }
  }
  return { exitCode: 127, reason: `cannot run ${program}: not found in PATH` };
}

/** The child's PATH; nothing where it is inherited and the policy hides it. */
function searchPath(request: SpawnRequest): string[] {
  try {
    const path = request.env["PATH"] ?? Deno.env.get("PATH") ?? "";
    return path.split(":").filter((directory) => directory.startsWith("/"));
  } catch {
    return [];
  }
}

/**
 * Whether there is a file at `path`, under any permissions: Deno names what is wrong with a cwd when a
 * spawn fails, and a cwd that is a file exists.
 */
function existsAsFile(
  path: string,
  request: SpawnRequest,
  start: (request: SpawnRequest) => SpawnedChild,
): boolean {
  try {
    start({ ...request, cwd: path }).signal("SIGKILL");
    return true;
  } catch (error) {
    return error instanceof Error && error.message.includes(": cwd is not a directory '");
  }
}

/** Nothing is there by this name, so that a spawn of it fails after the chdir, at the exec. */
const NO_SUCH_PROGRAM = "/dev/null/none";

/** Whether the child could enter its cwd. Where the policy forbids to ask, the program is blamed. */
function canEnter(
  request: SpawnRequest,
  start: (request: SpawnRequest) => SpawnedChild,
): boolean {
  const attempt = (cwd: string) => {
    try {
      start({ ...request, cwd, command: [NO_SUCH_PROGRAM] }).signal("SIGKILL");
      return undefined;
    } catch (error) {
      return osErrorCode(error);
    }
  };
  return attempt(request.cwd) === attempt("/");
}

/** What Deno's policy refused: a variable (it names them in its text), else the program. */
function refusedSubject(message: string, program: string): string {
  const variable = /with ((?:LD|DYLD)_\w*)/.exec(message)?.[1];
  return variable === undefined ? `program ${program}` : `environment variable ${variable}`;
}

/** A resident process that is talked to through its pipes. */
export interface Helper {
  readonly pid: number;
  readonly stdin: WritableStream<Uint8Array<ArrayBuffer>>;
  readonly stdout: ReadableStream<Uint8Array<ArrayBuffer>>;
  readonly exit: Promise<unknown>;
}

/**
 * Starts `sh -c script` with its own session, so that no signal meant for others reaches it.
 * @throws the runtime's error, NotCapable where the policy does not list `sh`
 */
export function spawnShellHelper(script: string, marker: string): Helper {
  const child = new Deno.Command("sh", {
    args: ["-c", script, "ateenvd-helper"],
    // A marker that the agent itself has inherited must not make the helper part of a tree.
    env: { LC_ALL: "C", [marker]: "" },
    cwd: "/",
    detached: true,
    stdin: "piped",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  return { pid: child.pid, stdin: child.stdin, stdout: child.stdout, exit: child.status };
}

/** Signals a process group through the `kill` program. @throws NotCapable where it is not listed */
export async function signalGroupByProgram(
  processGroup: number,
  signal: "SIGTERM" | "SIGKILL",
): Promise<void> {
  await new Deno.Command("kill", {
    args: [signal.replace("SIG", "-"), "--", `-${processGroup}`],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).output();
}
