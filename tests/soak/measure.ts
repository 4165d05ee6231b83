// What an agent costs right now: /metrics for what only it knows, /proc for what only the kernel knows.
// Must not import the product.
import { openDescriptors, residentBytes } from "../helpers/proc_stats.ts";

/** An agent, as far as measuring it goes. */
export interface Measured {
  /** `host:port`. */
  readonly address: string;
  readonly pid: number;
}

/** One look. */
export interface Sample {
  readonly rssBytes: number;
  /** By the kernel's count. */
  readonly descriptors: number;
  readonly streams: number;
  /** Without the connection that asks. */
  readonly connections: number;
  readonly running: number;
  readonly spoolBytes: number;
  /** Milliseconds that its main thread has run, and has waited for a processor. */
  readonly ranMs: number;
  readonly waitedMs: number;
}

/** Gauges of /metrics by name. */
export async function readGauges(address: string): Promise<ReadonlyMap<string, number>> {
  const answer = await fetch(`http://${address}/metrics`, { signal: AbortSignal.timeout(30_000) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`/metrics answers ${answer.status}: ${text}`);
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(lines.map((line) => {
    const space = line.lastIndexOf(" ");
    return [line.slice(0, space), Number(line.slice(space + 1))] as const;
  }));
}

/** What the kernel's scheduler has noted, in nanoseconds. */
async function mainThreadTimes(pid: number): Promise<readonly number[]> {
  const path = `/proc/${pid}/task/${pid}/schedstat`;
  const { stdout } = await new Deno.Command("cat", { args: [path], stderr: "null" }).output();
  return new TextDecoder().decode(stdout).split(" ").map(Number);
}

/** Looks once. */
export async function takeSample({ address, pid }: Measured): Promise<Sample> {
  const gauges = await readGauges(address);
  const [ranNs, waitedNs] = await mainThreadTimes(pid);
  const gauge = (name: string) => gauges.get(name) ?? NaN;
  return {
    rssBytes: await residentBytes(pid),
    descriptors: await openDescriptors(pid),
    streams: gauge("ateenv_open_streams"),
    connections: gauge("ateenv_open_connections") - 1,
    running: gauge("ateenv_running_processes"),
    spoolBytes: gauge("ateenv_spool_bytes"),
    ranMs: (ranNs ?? NaN) / 1e6,
    waitedMs: (waitedNs ?? NaN) / 1e6,
  };
}

/**
 * Looks until `isSettled`, for at most `patienceMs`; the last look, settled or not. The agent tells nobody
 * that it has become idle, so there is nothing to wait for but the next look.
 */
export async function waitSettled(
  agent: Measured,
  isSettled: (sample: Sample) => boolean,
  patienceMs: number,
): Promise<Sample> {
  const end = performance.now() + patienceMs;
  for (;;) {
    const sample = await takeSample(agent);
    if (isSettled(sample) || performance.now() > end) return sample;
    await new Promise<void>((resolve) => setTimeout(resolve, 100));
  }
}

/** No call, and at most so many connections and processes. */
export function isIdle(connections = 0, running = 0): (sample: Sample) => boolean {
  return (sample) =>
    sample.streams === 0 && sample.running <= running && sample.connections <= connections;
}

/** For the notes. */
export function formatSample(sample: Sample): string {
  return `RSS ${(sample.rssBytes / 2 ** 20).toFixed(0)} MiB, ${sample.descriptors} descriptors, ` +
    `${sample.streams} streams, ${sample.connections} connections, ${sample.running} running`;
}
