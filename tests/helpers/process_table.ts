// A process table on a throw-away state directory, and short ways to use it.
import { systemClock } from "../../src/clock.ts";
import type { Logger } from "../../src/log.ts";
import { createDenoSpawner } from "../../src/process/deno_spawner.ts";
import {
  type OutputSource,
  type ProcessInfo,
  ProcessTable,
  type ProcessTableOptions,
} from "../../src/process/process_table.ts";
import { openStateDir } from "../../src/process/state_dir.ts";
import { createStateDir } from "./state_dir.ts";

/** A log line that was written. */
export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly fields: Record<string, unknown>;
}

/** A logger that keeps its lines. */
export function createMemoryLogger(): { log: Logger; lines: LogLine[] } {
  const lines: LogLine[] = [];
  const at = (level: string) => (message: string, fields: Record<string, unknown> = {}) => {
    lines.push({ level, message, fields });
  };
  const log: Logger = {
    error: at("error"),
    warn: at("warn"),
    info: at("info"),
    debug: at("debug"),
    enabled: () => true,
  };
  return { log, lines };
}

/** A signal that is never aborted. */
export const NEVER = new AbortController().signal;

/** A table, and what is below it. */
export interface TestTable extends AsyncDisposable {
  readonly table: ProcessTable;
  readonly statePath: string;
  readonly lines: LogLine[];
}

/** Opens a table; with `statePath` on a state directory that stays when it is disposed. */
export async function openTestTable(
  options: Partial<ProcessTableOptions> = {},
  statePath?: string,
): Promise<TestTable> {
  const { log, lines } = createMemoryLogger();
  const directory = statePath === undefined ? await createStateDir() : undefined;
  const path = statePath ?? directory!.path;
  const state = openStateDir({ path, isShared: false, log });
  const table = await ProcessTable.open({
    state,
    workspace: path,
    spawner: createDenoSpawner(),
    clock: systemClock,
    log,
    maxProcesses: 64,
    processTimeoutMs: 0,
    killGraceMs: 0,
    outputLimitBytes: 0,
    spoolLimitBytes: 1024 ** 3,
    retain: 1000,
    retainForMs: 3_600_000,
    ...options,
  }).catch(async (error) => {
    state[Symbol.dispose]();
    await directory?.[Symbol.asyncDispose]();
    throw error;
  });
  return {
    table,
    statePath: path,
    lines,
    async [Symbol.asyncDispose]() {
      await table.shutdown(0);
      state[Symbol.dispose]();
      await directory?.[Symbol.asyncDispose]();
    },
  };
}

/** Starts a shell script. */
export function startShell(table: ProcessTable, script: string, cwd = ""): Promise<ProcessInfo> {
  return table.start({ command: ["sh", "-c", script], cwd, env: {} }, NEVER);
}

/** All output from two offsets on, up to the end of the process if `follow`. */
export async function readOutputs(
  table: ProcessTable,
  processId: string,
  { follow = true, stdoutOffset = 0, stderrOffset = 0 } = {},
): Promise<Record<OutputSource, Uint8Array>> {
  const pieces: Record<OutputSource, Uint8Array[]> = { stdout: [], stderr: [] };
  const request = { processId, stdoutOffset, stderrOffset, follow };
  for await (const { source, data } of table.outputs(request, NEVER)) pieces[source].push(data);
  return { stdout: joinBytes(pieces.stdout), stderr: joinBytes(pieces.stderr) };
}

/** Follows a process to its end. */
export async function waitFinal(table: ProcessTable, processId: string): Promise<ProcessInfo> {
  await readOutputs(table, processId, {
    stdoutOffset: Number.MAX_SAFE_INTEGER,
    stderrOffset: Number.MAX_SAFE_INTEGER,
  });
  return table.get(processId);
}

/** Follows stdout until `enough` says so of the text up to there. */
export async function readUntil(
  table: ProcessTable,
  processId: string,
  enough: (text: string) => boolean,
): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  const request = { processId, stdoutOffset: 0, stderrOffset: 0, follow: true };
  for await (const { source, data } of table.outputs(request, NEVER)) {
    if (source !== "stdout") continue;
    text += decoder.decode(data, { stream: true });
    if (enough(text)) return text;
  }
  throw new Error(`the output has ended before: ${JSON.stringify(text)}`);
}

/** Whether a process runs code still: it is there, and no zombie. */
export async function isAlive(pid: number): Promise<boolean> {
  const { stdout } = await new Deno.Command("sh", {
    args: ["-c", `cat /proc/${pid}/stat 2>/dev/null || true`],
    stderr: "null",
  }).output();
  const text = new TextDecoder().decode(stdout);
  return text !== "" && !/\) [ZX] /.test(text);
}

/** Concatenates. */
export function joinBytes(pieces: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(pieces.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let offset = 0;
  for (const piece of pieces) {
    all.set(piece, offset);
    offset += piece.byteLength;
  }
  return all;
}
