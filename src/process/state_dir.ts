// The agent's state directory: whose it is, which format it has, and that one agent uses it.
// Must not know what is kept in it beyond the names of the parts.
import { AgentError, osErrorCode } from "../errors.ts";
import type { Logger } from "../log.ts";

/** Version of everything below the state directory. Another one is refused, never deleted. */
const FORMAT = "1\n";

/** Another agent has the state directory; the message names it. */
export class StateDirInUse extends AgentError {
  constructor(message: string) {
    super("failed-precondition", message);
  }
}

/** Options of {@linkcode openStateDir}. */
export interface StateDirOptions {
  /** Absolute path of an existing directory. */
  readonly path: string;
  /** Below a directory that others can write to: it must be ours, 0700 and no link. */
  readonly isShared: boolean;
  readonly log: Logger;
}

/** A state directory that is locked by this agent until it is disposed. */
export class StateDir implements Disposable {
  readonly path: string;
  /** One directory for each process. */
  readonly processesPath: string;
  /** What was found and is not ours, or torn. */
  readonly asidePath: string;
  /** Temporary files of uploads. */
  readonly temporaryPath: string;
  readonly #lock: Deno.FsFile;

  constructor(path: string, lock: Deno.FsFile) {
    this.path = path;
    this.processesPath = `${path}/processes`;
    this.asidePath = `${path}/aside`;
    this.temporaryPath = `${path}/tmp`;
    this.#lock = lock;
  }

  /** Lets another agent have it. */
  [Symbol.dispose](): void {
    this.#lock.close();
  }
}

/**
 * Checks, locks and prepares the state directory.
 * @throws StateDirInUse when another agent has it
 * @throws AgentError `failed-precondition` when it is not ours to use, `internal` or a kind of the OS
 */
export function openStateDir({ path, isShared, log }: StateDirOptions): StateDir {
  if (isShared) checkOwner(path);
  const lock = lockDirectory(path);
  try {
    checkFormat(path);
    const state = new StateDir(path, lock);
    for (const part of [state.processesPath, state.asidePath, state.temporaryPath]) makePart(part);
    log.debug("state directory opened", { path });
    return state;
  } catch (error) {
    lock.close();
    throw error;
  }
}

/** Someone else may have been first to make a directory of that name. */
function checkOwner(path: string): void {
  const info = Deno.lstatSync(path);
  if (info.isSymlink || !info.isDirectory) throw refusal(path, "is a link or no directory");
  const mode = (info.mode ?? 0) & 0o777;
  if (mode !== 0o700) throw refusal(path, `has mode 0${mode.toString(8)} instead of 0700`);
  // Whose files the agent's are needs no permission to find out this way.
  let own: string;
  try {
    own = Deno.makeTempFileSync({ dir: path, prefix: ".owner-" });
  } catch (error) {
    throw refusal(path, "cannot be written to", error);
  }
  try {
    if (Deno.lstatSync(own).uid !== info.uid) throw refusal(path, "belongs to another user");
  } finally {
    Deno.removeSync(own);
  }
}

function lockDirectory(path: string): Deno.FsFile {
  let file: Deno.FsFile | undefined;
  try {
    file = Deno.openSync(`${path}/lock`, { read: true, write: true, create: true, mode: 0o600 });
    if (file.tryLockSync(true)) {
      // For the message of an agent that finds the lock taken.
      file.truncateSync();
      file.writeSync(new TextEncoder().encode(`${Deno.pid}\n`));
      return file;
    }
  } catch (error) {
    file?.close();
    throw refusal(path, `cannot be locked (${osErrorCode(error) ?? "unexpected error"})`, error);
  }
  file.close();
  const pid = /^\d+/.exec(readHolder(path))?.[0];
  throw new StateDirInUse(
    `cannot use state directory "${path}": it is in use by another agent` +
      `${pid === undefined ? "" : ` (pid ${pid})`}; stop that one, or give another --state-dir`,
  );
}

function readHolder(path: string): string {
  try {
    return Deno.readTextFileSync(`${path}/lock`);
  } catch {
    return "";
  }
}

function checkFormat(path: string): void {
  const file = `${path}/format`;
  let found: string | undefined;
  try {
    found = Deno.readTextFileSync(file);
  } catch (error) {
    if (osErrorCode(error) !== "ENOENT") {
      throw refusal(path, "has a format file that cannot be read", error);
    }
  }
  if (found === FORMAT) return;
  // Empty: an agent that died between making the file and writing it. It had kept nothing yet.
  if (found !== undefined && found !== "") {
    const version = JSON.stringify(found.slice(0, 40).trimEnd());
    throw refusal(
      path,
      `has format version ${version}, and this agent knows "${FORMAT.trimEnd()}" only; ` +
        "nothing in it was changed",
    );
  }
  Deno.writeTextFileSync(file, FORMAT, { mode: 0o600 });
}

function makePart(path: string): void {
  try {
    Deno.mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if (osErrorCode(error) !== "EEXIST") throw error;
    if (!Deno.lstatSync(path).isDirectory) throw refusal(path, "is no directory", error);
  }
}

function refusal(path: string, what: string, cause?: unknown): AgentError {
  return new AgentError("failed-precondition", `cannot use state directory "${path}": it ${what}`, {
    cause,
  });
}
