// What every figure works with: sizes, rounds, the load generator, the shared servers.
// Must not know any figure.
import type { Answer, LoadGenerator, Options } from "./load.ts";
import { cpuMs, type Server } from "./servers.ts";
import type { Sample } from "./statistics.ts";
import type { Row } from "./table.ts";

export const MIB = 1024 * 1024;

/** The surroundings of a figure. */
export interface Bench {
  readonly rounds: number;
  /** Smaller sizes, for a look rather than a record. */
  readonly isQuick: boolean;
  readonly load: LoadGenerator;
  /** The agent with default settings, shared by the figures that do not start their own. */
  readonly agent: Server;
  readonly floor: Server;
  /** A scratch directory. */
  readonly directory: string;
}

/** One group of rows. */
export interface Figure {
  readonly name: string;
  measure(bench: Bench): Promise<Row[]>;
}

/** The full value, or the quick one. */
export function sized(bench: Bench, full: number, quick: number): number {
  return bench.isQuick ? quick : full;
}

/** An answer as quantities, together with the CPU time of the server meanwhile. */
export async function measured(
  server: Server,
  work: () => Promise<Answer>,
): Promise<Sample> {
  const before = await cpuMs(server.pid);
  const answer = await work();
  const cpu = await cpuMs(server.pid) - before;
  const { id: _, ...quantities } = answer;
  return {
    ...quantities,
    rate: answer.count / answer.seconds,
    mibPerSecond: answer.bytes / MIB / answer.seconds,
    cpuMsPerCall: cpu / answer.count,
    cpuMsPerMib: cpu / (answer.bytes / MIB),
    cpuMs: cpu,
  };
}

/** Runs an operation of the load generator against `server`. */
export function loadOn(
  bench: Bench,
  server: Server,
  operation: string,
  options: Options,
  child: readonly string[] = [],
): Promise<Sample> {
  return measured(
    server,
    () => bench.load.run(operation, { addr: server.address, ...options }, child),
  );
}

/** Makes a FIFO at `path` and returns the path. */
export async function makeFifo(path: string): Promise<string> {
  const { success } = await new Deno.Command("mkfifo", { args: [path] }).output();
  if (!success) throw new Error(`Cannot make the FIFO ${path}`);
  return path;
}

/** A child that says one byte, waits for the FIFO to be opened for writing, writes `bytes`, and exits. */
export function gatedChild(fifo: string, bytes: number): string[] {
  const rest = bytes > 0 ? `exec head -c ${bytes} /dev/zero` : "exit 0";
  return ["sh", "-c", `printf r; : <"$0"; ${rest}`, fifo];
}
