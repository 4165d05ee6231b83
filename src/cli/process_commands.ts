// `start`, `status`, `logs`, `wait` and `kill`: processes by their id.
import type { ProcessState } from "../client/process.ts";
import type { Offsets } from "./options.ts";
import type { RunOptions } from "./run.ts";
import type { Session } from "./session.ts";

/** Starts `argv` in the background and prints its id. */
export async function start(
  session: Session,
  argv: readonly string[],
  options: RunOptions,
): Promise<number> {
  await using client = await session.connect();
  const process = await client.processes.start(argv, {
    signal: session.io.interrupt,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.env === undefined ? {} : { env: options.env }),
  });
  await session.answer({ processId: process.id }, `${process.id}\n`);
  return 0;
}

/** Prints what is known of a process. */
export async function status(session: Session, id: string): Promise<number> {
  await using client = await session.connect();
  const state = await client.processes.get(id).status({ signal: session.io.interrupt });
  await session.answer(toStateJson(state), toStateText(state));
  return 0;
}

/** Options of `logs`. */
export interface LogsOptions {
  readonly follow?: boolean;
  readonly sinceOffset?: Offsets;
  readonly only?: "stdout" | "stderr";
}

/** Prints stored output, each stream to the stream that it was written to. */
export async function logs(session: Session, id: string, options: LogsOptions): Promise<number> {
  const { io } = session;
  await using client = await session.connect();
  const offsets = options.sinceOffset ?? { stdoutOffset: 0, stderrOffset: 0 };
  const output = client.processes.get(id).output({
    ...offsets,
    ...(options.only === "stdout" ? { stderrOffset: Infinity } : {}),
    ...(options.only === "stderr" ? { stdoutOffset: Infinity } : {}),
    follow: options.follow === true,
    signal: io.interrupt,
  });
  const next = { stdout: offsets.stdoutOffset, stderr: offsets.stderrOffset };
  for await (const { source, data } of output) {
    if (session.json) {
      const base64 = data.toBase64();
      await session.answer({ source, offset: next[source], base64 }, "");
      next[source] += data.length;
    } else {
      await io[source].write(data);
    }
  }
  return 0;
}

/** Waits for the end of a process; the exit code is the process's. */
export async function wait(session: Session, id: string): Promise<number> {
  await using client = await session.connect();
  const state = await client.processes.get(id).wait({ signal: session.io.interrupt });
  await session.answer(toStateJson(state), `${state.status}, exit code ${state.exitCode}\n`);
  return state.exitCode;
}

/** Kills a process with all of its descendants; says so where it had finished before. */
export async function kill(session: Session, id: string): Promise<number> {
  await using client = await session.connect();
  const process = client.processes.get(id);
  const options = { signal: session.io.interrupt };
  const before = await process.status(options);
  const wasRunning = before.status === "running";
  const exitCode = wasRunning ? await process.kill(options) : before.exitCode;
  await session.answer(
    { processId: id, exitCode, wasRunning },
    wasRunning ? "killed\n" : `had already finished, exit code ${exitCode}\n`,
  );
  return 0;
}

function toStateJson(state: ProcessState) {
  return {
    processId: state.id,
    status: state.status,
    exitCode: state.status === "running" ? null : state.exitCode,
    startedAt: state.startedAt?.toISOString() ?? null,
    finishedAt: state.finishedAt?.toISOString() ?? null,
  };
}

function toStateText(state: ProcessState): string {
  const lines = [`process    ${state.id}`, `status     ${state.status}`];
  if (state.status !== "running") lines.push(`exit code  ${state.exitCode}`);
  if (state.startedAt !== undefined) lines.push(`started    ${state.startedAt.toISOString()}`);
  if (state.finishedAt !== undefined) lines.push(`finished   ${state.finishedAt.toISOString()}`);
  return lines.join("\n") + "\n";
}
