// `ateenv run`: a command in the sandbox that looks like a local one.
import type { AteenvClient } from "../client/client.ts";
import { AteenvError } from "../client/error.ts";
import type { ProcessHandle } from "../client/process.ts";
import { systemPorts } from "../client/retry.ts";
import { CliError, OUTPUT_CLOSED, TIMED_OUT, toCliError } from "./failure.ts";
import type { Session } from "./session.ts";
import { Interrupt, OutputClosed, writeText } from "./stdio.ts";

/** Options of `run` and `start`. */
export interface RunOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** In milliseconds. */
  readonly timeout?: number;
}

/** How long the kill of a command that has to end may take, with all attempts. */
const KILL_MS = 8_000;

/** How long to wait for the last bytes of a killed command. Only where our own output is blocked does its
 * follow not end at once. */
const LAST_BYTES_MS = 2_000;

/** How long to ask an agent whether it is why a command has ended. */
const HEALTH_MS = 500;

/** The exit code of a program that there is none of. */
const NOT_FOUND = 127;

/** Why a command is ended before its time. The first reason wins. */
type Ending = "interrupted" | "timed out" | "output closed";

/** Runs `argv`; the exit code is the command's. */
export async function run(
  session: Session,
  argv: readonly string[],
  options: RunOptions,
): Promise<number> {
  const { io } = session;
  await using client = await session.connect();
  session.lastWords = "a command may have been started, and may still run";
  const process = await client.processes.start(argv, {
    signal: io.interrupt,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.env === undefined ? {} : { env: options.env }),
  });

  session.lastWords = `the command may still run: ateenv kill ${process.id}`;
  const stop = new AbortController();
  const killed = Promise.withResolvers<void>();
  const lastBytesLate = killed.promise.then(() => systemPorts.sleep(LAST_BYTES_MS, stop.signal));
  let ending: Ending | undefined;
  const end = (reason: Ending) => {
    if (ending !== undefined) return;
    ending = reason;
    process.kill({ signal: AbortSignal.timeout(KILL_MS) })
      .then(() => killed.resolve(), killed.reject);
  };
  const onInterrupt = () => {
    end("interrupted");
    if (!io.stderr.isTerminal) return;
    // Below the ^C that the terminal shows.
    writeText(io.stderr, "\nateenv: killing it; Ctrl-C again to leave it running\n")
      .catch(() => {});
  };
  io.interrupt.addEventListener("abort", onInterrupt, { once: true });
  if (io.interrupt.aborted) onInterrupt();
  const timer = options.timeout === undefined
    ? undefined
    : setTimeout(() => end("timed out"), options.timeout);
  try {
    const copied = copyOutput(process, session, stop.signal).catch((error) => {
      if (!(error instanceof OutputClosed)) throw error;
      end("output closed");
      return killed.promise;
    });
    await Promise.race([copied, lastBytesLate]);
    if (ending === undefined) {
      const state = await process.wait({ signal: io.interrupt });
      if (state.status === "terminated" && await isShuttingDown(client)) {
        await session.note("the agent is shutting down, which ends all commands");
      }
      if (state.exitCode === NOT_FOUND && argv.length === 1 && /\s/.test(argv[0]!)) {
        await session.note(`that is one word; for a line of shell: ateenv run -- sh -c '...'`);
      }
      return state.exitCode;
    }
  } catch (error) {
    if (ending === undefined) throw stillThere(error, process);
  } finally {
    clearTimeout(timer);
    io.interrupt.removeEventListener("abort", onInterrupt);
    stop.abort();
  }
  try {
    await killed.promise;
  } catch (error) {
    const { message } = toCliError(error);
    await session.note(
      `the command may still run (${message}); end it with: ateenv kill ${process.id}`,
    );
  }
  return await endingCode(session, ending);
}

/** Whether that is why a signal ended a command. An agent that stops still answers, or has just gone. */
async function isShuttingDown(client: AteenvClient): Promise<boolean> {
  try {
    return !(await client.health({ signal: AbortSignal.timeout(HEALTH_MS) })).ready;
  } catch (error) {
    return error instanceof AteenvError && error.kind === "unavailable";
  }
}

/** The exit code of a command that was ended before its time. */
async function endingCode(session: Session, ending: Ending): Promise<number> {
  switch (ending) {
    case "output closed":
      return OUTPUT_CLOSED;
    case "timed out":
      await session.note("timed out, and killed; give it longer with --timeout");
      return TIMED_OUT;
    case "interrupted": {
      const reason: unknown = session.io.interrupt.reason;
      return reason instanceof Interrupt ? reason.exitCode : 130;
    }
  }
}

async function copyOutput(
  process: ProcessHandle,
  { io }: Session,
  signal: AbortSignal,
): Promise<void> {
  try {
    for await (const { source, data } of process.output({ signal })) await io[source].write(data);
  } catch (error) {
    // Stopped by us: the rest is not wanted.
    if (!signal.aborted) throw error;
  }
}

/** The command goes on without us; say how to get back to it. */
function stillThere(error: unknown, process: ProcessHandle): CliError {
  const failure = toCliError(error);
  if (!(error instanceof AteenvError)) return failure;
  return new CliError(failure.message, {
    kind: failure.kind,
    cause: error,
    advice: `the command may still run: see \`ateenv logs -f ${process.id}\`, ` +
      `end it with \`ateenv kill ${process.id}\``,
  });
}
