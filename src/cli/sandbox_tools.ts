// What the API has no call for, asked of small programs in the sandbox: stat, mkdir, rm.
// Must not touch local files.
import type { AteenvClient } from "../client/client.ts";
import { AteenvError } from "../client/error.ts";
import { joinBytes } from "../client/byte_stream.ts";
import type { ProcessHandle } from "../client/process.ts";
import { CliError } from "./failure.ts";

/** What a path of the sandbox is. `unknown` where no program can be asked; `reason` says why. */
export type RemoteEntry =
  | { readonly kind: "file"; readonly mode: number; readonly size: number }
  | { readonly kind: "directory" | "other" | "missing" }
  | { readonly kind: "unknown"; readonly reason: string };

/** How a program of the sandbox ended. */
export interface ToolResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Programs that cannot be found or run exit like this. */
const CANNOT_RUN: readonly number[] = [126, 127];

/** Refusals to start any process, or this one. */
const CANNOT_START: readonly string[] = ["unimplemented", "permission-denied"];

/** File types in st_mode (inode(7)). */
const S_IFMT = 0o170000;
const S_IFREG = 0o100000;
const S_IFDIR = 0o040000;

/** A path that no program takes for an option. */
export function toOperand(path: string): string {
  return path.startsWith("/") ? path : `./${path}`;
}

/** Thrown where a program cannot be run in the sandbox at all. */
export class ToolMissing extends CliError {}

/** How often a tool is started again whose start was lost on the way. */
const MAX_STARTS = 3;

/**
 * Starts a program that may as well run twice: where the answer was lost, it is started again.
 *
 * @throws {ToolMissing} where no process, or not this one, may be started.
 */
export async function startTool(
  client: AteenvClient,
  argv: readonly string[],
  signal: AbortSignal,
): Promise<ProcessHandle> {
  for (let starts = 1;; starts++) {
    try {
      // LC_ALL: messages are shown as they are, and must not depend on the image.
      return await client.processes.start(argv, { signal, env: { LC_ALL: "C" } });
    } catch (error) {
      if (!(error instanceof AteenvError)) throw error;
      if (error.kind === "outcome-unknown" && starts < MAX_STARTS) continue;
      if (!CANNOT_START.includes(error.kind)) throw error;
      throw new ToolMissing(`cannot run ${argv[0]} in the sandbox: ${error.message}`, {
        kind: error.kind,
        cause: error,
      });
    }
  }
}

/** Runs a program that may as well run twice to its end. @throws {ToolMissing} */
export async function runTool(
  client: AteenvClient,
  argv: readonly string[],
  signal: AbortSignal,
): Promise<ToolResult> {
  const parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  const process = await startTool(client, argv, signal);
  for await (const { source, data } of process.output({ signal })) parts[source].push(data);
  const { exitCode } = await process.wait({ signal });
  const text = (source: "stdout" | "stderr") =>
    new TextDecoder().decode(joinBytes(parts[source])).trim();
  if (CANNOT_RUN.includes(exitCode)) {
    throw new ToolMissing(`cannot run ${argv[0]} in the sandbox: ${text("stderr")}`);
  }
  return { exitCode, stdout: text("stdout"), stderr: text("stderr") };
}

/** Runs a program that has to succeed. @throws {CliError} with what it said on stderr. */
export async function needTool(
  client: AteenvClient,
  argv: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const { exitCode, stderr } = await runTool(client, argv, signal);
  if (exitCode !== 0) {
    throw new CliError(`${argv[0]} failed in the sandbox: ${stderr || `exit code ${exitCode}`}`, {
      kind: "failed-precondition",
    });
  }
}

/** What `path` is, links followed. */
export async function statRemote(
  client: AteenvClient,
  path: string,
  signal: AbortSignal,
): Promise<RemoteEntry> {
  let result: ToolResult;
  try {
    // %f and %s are the formats that coreutils and busybox share and no locale changes.
    result = await runTool(client, ["stat", "-L", "-c", "%f %s", toOperand(path)], signal);
  } catch (error) {
    if (error instanceof ToolMissing) return { kind: "unknown", reason: error.message };
    throw error;
  }
  if (result.exitCode !== 0) return { kind: "missing" };
  const match = /^([0-9a-f]+) (\d+)$/.exec(result.stdout);
  if (match === null) {
    return { kind: "unknown", reason: `stat in the sandbox says ${JSON.stringify(result.stdout)}` };
  }
  const mode = parseInt(match[1]!, 16);
  switch (mode & S_IFMT) {
    case S_IFREG:
      return { kind: "file", mode: mode & 0o777, size: Number(match[2]) };
    case S_IFDIR:
      return { kind: "directory" };
    default:
      return { kind: "other" };
  }
}
