// A workspace over throw-away directories, and short ways to call it, for the tests of this room.
// Holds no tests itself.
import { AgentError } from "../../src/errors.ts";
import { createLogger, type Logger } from "../../src/log.ts";
import { Workspace, type WorkspaceOptions } from "../../src/workspace/workspace.ts";
import { createStateDir, createTempDir } from "../helpers/state_dir.ts";

export const silentLog: Logger = createLogger("error", () => {});

/** What is in the file that escapes try to reach. */
export const SECRET = "OUTSIDE";

/** Directories `root` (the workspace) and `outside` (with a secret), and a Workspace confined to the first. */
export interface Sandbox extends AsyncDisposable {
  readonly base: string;
  readonly root: string;
  readonly outside: string;
  readonly state: string;
  readonly workspace: Workspace;
}

export async function createSandbox(options: Partial<WorkspaceOptions> = {}): Promise<Sandbox> {
  const base = await createTempDir("ateenvd-ws-");
  const state = await createStateDir();
  const root = `${base.path}/ws`;
  const outside = `${base.path}/outside`;
  await Deno.mkdir(root);
  await Deno.mkdir(outside);
  await Deno.writeTextFile(`${outside}/secret`, SECRET);
  const workspace = new Workspace({
    root,
    workspace: root,
    readPaths: [],
    forbidden: [],
    stateDir: state.path,
    fsync: false,
    log: silentLog,
    ...options,
  });
  return {
    base: base.path,
    root,
    outside,
    state: state.path,
    workspace,
    async [Symbol.asyncDispose]() {
      await workspace[Symbol.asyncDispose]();
      await state[Symbol.asyncDispose]();
      await base[Symbol.asyncDispose]();
    },
  };
}

const never = new AbortController().signal;

export async function* chunksOf(
  ...chunks: readonly (string | Uint8Array)[]
): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) {
    yield typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk;
  }
}

export async function readBytes(workspace: Workspace, path: string): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  for await (const piece of workspace.readFile(path, never)) pieces.push(piece);
  return new Uint8Array(await new Blob(pieces as Uint8Array<ArrayBuffer>[]).arrayBuffer());
}

export async function readText(workspace: Workspace, path: string): Promise<string> {
  return new TextDecoder().decode(await readBytes(workspace, path));
}

export function writeText(workspace: Workspace, path: string, text: string, mode = 0) {
  return workspace.writeFile(path, mode, chunksOf(text), never);
}

/** The kind of the error that `action` ends with, or "ok". */
export async function kindOf(action: () => Promise<unknown>): Promise<string> {
  try {
    await action();
    return "ok";
  } catch (error) {
    if (error instanceof AgentError) return error.kind;
    throw error;
  }
}

/** All paths below `directory`, relative, sorted; symlinks are not followed. */
export async function listTree(directory: string, below = ""): Promise<string[]> {
  const paths: string[] = [];
  for await (const entry of Deno.readDir(`${directory}/${below}`)) {
    const path = below + entry.name;
    paths.push(path);
    if (entry.isDirectory) paths.push(...await listTree(directory, `${path}/`));
  }
  return paths.sort();
}

/** The descriptors that this process has open. */
export async function countDescriptors(state: string): Promise<number> {
  let count = 0;
  for await (const _ of Deno.readDir(`${state}/proc/self/fd`)) count++;
  return count;
}

/** Runs a program to its end and returns its stdout; throws with stderr if it fails. */
export async function run(command: string, ...args: string[]): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(command, { args }).output();
  if (!success) {
    throw new Error(`${command} ${args.join(" ")}: ${new TextDecoder().decode(stderr)}`);
  }
  return new TextDecoder().decode(stdout);
}

export const isRoot = Deno.uid() === 0;

/** Whether this process may mount: as root in a container it often may not. */
export const canMount = isRoot && await (async () => {
  const dir = await createTempDir();
  try {
    await run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir.path);
    await run("umount", dir.path);
    return true;
  } catch {
    return false;
  } finally {
    await dir[Symbol.asyncDispose]();
  }
})();
