// The only user of Deno.Command: leaders with their pipes, and the two helpers of a kill.
// Must not know records, spools or trees.
import { systemClock } from "../clock.ts";
import { AgentError, type ErrorKind, osErrorCode } from "../errors.ts";
import { Deadline } from "./deadline.ts";
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
            await new Deadline(systemClock, pauseMs).passed;
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

/** Starts a leader, or throws what the runtime throws. */
type Start = (request: SpawnRequest) => SpawnedChild;

/**
 * What a failed spawn means. Decides on the class and code of the error, but for what Deno tells apart by
 * text only (pinned by tests): a wrong cwd, a program that the search in PATH has not found, and the
 * variable that the policy refuses.
 * @throws AgentError when it is the call that failed, not the program
 */
function judge(error: unknown, request: SpawnRequest, start: Start): SpawnedChild | CannotRun {
  const code = osErrorCode(error);
  const program = JSON.stringify(request.command[0]);
  switch (code) {
    case "ENOENT":
      return judgeMissing(error, request, start);
    case "ENOTDIR":
    case "EACCES":
    case "EPERM":
      // The same codes come from the chdir.
      requireCwd(request, start);
      return { exitCode: 126, reason: `cannot run ${program}: ${code}` };
    case "NotCapable":
      throw failure(
        "permission-denied",
        `${refusedSubject(error, program)} is not permitted ` +
          "by the agent's policy (--allow-run)",
        error,
      );
    case "E2BIG":
      throw failure("invalid-argument", "command and env are too large for the kernel", error);
    case "EINVAL":
      throw failure("invalid-argument", `cannot run ${program}: EINVAL`, error);
    case "EAGAIN":
    case "ENOMEM":
    case "EMFILE":
    case "ENFILE":
      throw failure("resource-exhausted", `cannot start a process: ${code}`, error);
    case undefined:
      throw failure("internal", `cannot run ${program}`, error);
    default:
      return { exitCode: 126, reason: `cannot run ${program}: ${code}` };
  }
}

/**
 * ENOENT is also what the kernel says of a script whose interpreter is missing, and what the search in
 * PATH says of a file without the x bit.
 */
function judgeMissing(
  error: unknown,
  request: SpawnRequest,
  start: Start,
): SpawnedChild | CannotRun {
  const [name, ...args] = request.command;
  const program = JSON.stringify(name);
  requireCwd(request, start, error);
  const isPath = name!.includes("/");
  const path = name!.startsWith("/") ? name! : `${request.cwd}/${name}`;
  const isFound = isPath
    ? existsAsFile(path, request, start)
    : !(error as Error).message.endsWith(": entity not found");
  if (isFound) {
    return { exitCode: 126, reason: `cannot run ${program}: its interpreter is missing (ENOENT)` };
  }
  if (isPath) return { exitCode: 127, reason: `cannot run ${program}: not found` };
  for (const directory of searchPath(request)) {
    try {
      return start({ ...request, command: [`${directory}/${name}`, ...args] });
    } catch (error) {
      if (osErrorCode(error) !== "EACCES") continue;
      return { exitCode: 126, reason: `cannot run ${program}: EACCES` };
    }
  }
  return { exitCode: 127, reason: `cannot run ${program}: not found in PATH` };
}

/** Nothing is there by this name: a spawn of it fails at the exec, or before it at the chdir. */
const NO_SUCH_PROGRAM = "/dev/null/none";

/**
 * Tries the cwd alone: under any permissions to read, and with the user that the child has. Where the
 * policy forbids even that, `error` is all there is to tell by.
 * @throws AgentError when the cwd cannot be used
 */
function requireCwd(request: SpawnRequest, start: Start, error?: unknown): void {
  const attempt = (cwd: string): unknown => {
    try {
      start({ ...request, cwd, command: [NO_SUCH_PROGRAM] }).signal("SIGKILL");
    } catch (error) {
      return error;
    }
  };
  const cwd = JSON.stringify(request.cwd);
  const tried = attempt(request.cwd);
  for (const fault of [tried, error]) {
    const text = / (No such cwd|cwd is not a directory) '/.exec(messageOf(fault))?.[1];
    if (text === undefined) continue;
    const what = text === "No such cwd" ? "does not exist" : "is not a directory";
    throw failure("invalid-argument", `cwd ${cwd} ${what}`, fault);
  }
  const code = osErrorCode(tried);
  if (code === osErrorCode(attempt("/"))) return;
  throw failure("permission-denied", `cwd ${cwd} cannot be entered: ${code}`, tried);
}

/**
 * Whether there is a file at `path`, under any permissions to read: Deno says what is wrong with a cwd
 * when a spawn fails, and a cwd that is a file exists.
 */
function existsAsFile(path: string, request: SpawnRequest, start: Start): boolean {
  try {
    start({ ...request, cwd: path }).signal("SIGKILL");
    return true;
  } catch (error) {
    return messageOf(error).includes(": cwd is not a directory '");
  }
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

/** What Deno's policy refused: a variable (it names them in its text), else the program. */
function refusedSubject(error: unknown, program: string): string {
  const variable = /with ((?:LD|DYLD)_\w*)/.exec(messageOf(error))?.[1];
  return variable === undefined ? `program ${program}` : `environment variable ${variable}`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : "";
}

function failure(kind: ErrorKind, message: string, cause: unknown): AgentError {
  return new AgentError(kind, message, { cause });
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
export function spawnShellHelper(script: string, marker: string, cwd = "/"): Helper {
  const child = new Deno.Command("sh", {
    args: ["-c", script, "ateenvd-helper"],
    // A marker that the agent itself has inherited must not make the helper part of a tree.
    env: { LC_ALL: "C", [marker]: "" },
    cwd,
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
