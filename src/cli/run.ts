// `ateenv run`: a command in the sandbox that looks like a local one.
import { AteenvError } from "../client/error.ts";
import type { ProcessHandle } from "../client/process.ts";
import { CliError, OUTPUT_CLOSED, TIMED_OUT, toCliError } from "./failure.ts";
import type { Session } from "./session.ts";
import { Interrupt, OutputClosed } from "./stdio.ts";

/** Options of `run` and `start`. */
export interface RunOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** In milliseconds. */
  readonly timeout?: number;
}

/** How long the kill of a command that has to end may take, with all attempts. */
const KILL_MS = 8_000;

/** How long to wait for the last bytes of a killed command: its follow ends at once, unless our own
 * output is blocked. */
const LAST_BYTES_MS = 2_000;

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
  const process = await client.processes.start(argv, {
    signal: io.interrupt,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.env === undefined ? {} : { env: options.env }),
  });

  const stop = new AbortController();
  const killed = Promise.withResolvers<void>();
  let ending: Ending | undefined;
  const end = (reason: Ending) => {
    if (ending !== undefined) return;
    ending = reason;
    process.kill({ signal: AbortSignal.timeout(KILL_MS) }).then(
      () => killed.resolve(),
      killed.reject,
    );
  };
  const onInterrupt = () => end("interrupted");
  io.interrupt.addEventListener("abort", onInterrupt, { once: true });
  if (io.interrupt.aborted) onInterrupt();
  const timer = options.timeout === undefined
    ? undefined
    : setTimeout(() => end("timed out"), options.timeout);
  try {
    const copied = copyOutput(process, session, stop.signal).catch((error) => {
      if (!(error instanceof OutputClosed)) throw error;
      end("output closed");
    });
    await Promise.race([copied, lateEnd(killed.promise)]);
    if (ending === undefined) return (await process.wait({ signal: io.interrupt })).exitCode;
    await killed.promise;
  } catch (error) {
    if (ending === undefined && !io.interrupt.aborted) throw stillThere(error, process);
    await session.note(
      `the command may still run (${toCliError(error).message}): ateenv kill ${process.id}`,
    ).catch(() => {});
  } finally {
    clearTimeout(timer);
    io.interrupt.removeEventListener("abort", onInterrupt);
    stop.abort();
  }
  if (ending === "output closed") return OUTPUT_CLOSED;
  if (ending === "timed out") {
    await session.note(`timed out, and killed: give it longer with --timeout`);
    return TIMED_OUT;
  }
  const reason: unknown = io.interrupt.reason;
  return reason instanceof Interrupt ? reason.exitCode : 130;
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

/** Resolves some time after the kill; rejects with it. */
async function lateEnd(killed: Promise<void>): Promise<void> {
  await killed;
  await new Promise<void>((resolve) => {
    // Does not keep the process alive: whoever waits for the last bytes does.
    const timer = setTimeout(resolve, LAST_BYTES_MS);
    Deno.unrefTimer(timer);
  });
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
