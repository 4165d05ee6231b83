// A hundred clients that do everything at once, some of which vanish, with hostile frames on the side.
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { formatSample, isIdle, takeSample, waitSettled } from "../measure.ts";
import { Pulse } from "../pulse.ts";
import {
  atMost,
  createRandom,
  exactly,
  flat,
  type Scenario,
  type SoakContext,
} from "../scenario.ts";
import { fuzzInput } from "../wire/fuzz_input.ts";
import { runFuzzInput } from "../wire/fuzz_run.ts";
import type { LoadReport } from "../workers/load_worker.ts";
import { WorkerProcess } from "../workers/worker_process.ts";

const DURATION_MS = 600_000;
const WORKERS = 10;
const CLIENTS_PER_WORKER = 10;
/** Share of the time that fills caches and pools: what is left of it afterwards is the baseline. */
const WARM_UP = 1 / 3;
/** A hundred uploads, downloads and followers under way; 580 was the most seen. It means that nothing grows. */
const MAX_RSS_MIB = 640;
/** Longest that the last operations of a client may take. */
const FINISH_MS = 90_000;
/** How long a client is stopped at full scale: longer than the keepalive bears. */
const STOPPED_MS = 50_000;

/** The load itself takes its time; nothing waits for it. */
function pass(delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, delayMs);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

/** All clients of one load. */
class Load {
  readonly reports: LoadReport[] = [];
  stopped = 0;
  killed = 0;
  hostile = 0;
  /** Client processes that did not end. */
  stuck = 0;
  readonly failures: string[] = [];
  readonly #context: SoakContext;
  readonly #address: string;
  readonly #random: () => number;
  #nextSeed: number;

  constructor(context: SoakContext, address: string) {
    this.#context = context;
    this.#address = address;
    this.#random = createRandom(context.seed);
    this.#nextSeed = context.seed;
  }

  /** Runs for `durationMs`; `vanishing` stops and kills clients, and sends hostile frames, meanwhile. */
  async run(durationMs: number, vanishing: boolean): Promise<void> {
    const workers = Array.from({ length: WORKERS }, () => this.#start());
    const over = new AbortController();
    const chaos = vanishing
      ? Promise.all([this.#vanish(workers, over.signal), this.#attack(over.signal)])
      : undefined;
    await pass(durationMs);
    over.abort();
    await chaos;
    const reports = await Promise.all(
      workers.map((worker) => worker.finish<LoadReport>(FINISH_MS)),
    );
    for (const report of reports) {
      if (report === undefined) this.stuck++;
      else this.reports.push(report);
    }
  }

  #start(): WorkerProcess {
    const seed = String(this.#nextSeed++ % 1_000_000);
    return new WorkerProcess("load_worker.ts", [
      this.#address,
      String(CLIENTS_PER_WORKER),
      seed,
    ]);
  }

  async #vanish(workers: WorkerProcess[], over: AbortSignal): Promise<void> {
    while (!over.aborted) {
      await pass(STOPPED_MS / 5 * this.#context.scale, over);
      const index = Math.floor(this.#random() * workers.length);
      const worker = workers[index]!;
      worker.signal("SIGSTOP");
      this.stopped++;
      await pass(STOPPED_MS * this.#context.scale, over);
      if (this.#random() < 0.5) {
        worker.signal("SIGCONT");
      } else {
        await worker.kill();
        this.killed++;
        workers[index] = this.#start();
      }
    }
  }

  async #attack(over: AbortSignal): Promise<void> {
    for (let seed = this.#context.seed; !over.aborted; seed++) {
      const failure = await runFuzzInput(this.#address, fuzzInput(seed)).catch(String);
      if (failure !== undefined) this.failures.push(`hostile seed ${seed}: ${failure}`);
      this.hostile++;
      await pass(20, over);
    }
  }
}

function sum(records: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const total: Record<string, number> = {};
  for (const record of records) {
    for (const [name, count] of Object.entries(record)) total[name] = (total[name] ?? 0) + count;
  }
  return total;
}

export const mixedLoad: Scenario = {
  name: "mixed-load",
  async run(context) {
    await using agent = await startAgentProcess();
    await using pulse = await Pulse.start(agent.address);
    const load = new Load(context, agent.address);
    const durationMs = DURATION_MS * context.scale;
    await load.run(durationMs * WARM_UP, false);
    const before = await waitSettled(agent, isIdle(1, 1), 60_000);
    context.note(`mixed-load: after the warm-up ${formatSample(before)}`);
    const loaded = load.run(durationMs * (1 - WARM_UP), true);
    const watching = new AbortController();
    loaded.finally(() => watching.abort());
    const resident: number[] = [];
    let last = before;
    while (!watching.signal.aborted) {
      const sample = await takeSample(agent);
      resident.push(sample.rssBytes);
      context.note(
        `mixed-load: ${formatSample(sample)}; ran ${
          (sample.ranMs - last.ranMs).toFixed(0)
        } ms, waited ${(sample.waitedMs - last.waitedMs).toFixed(0)} ms for a processor`,
      );
      last = sample;
      await pass(Math.max(5_000, durationMs / 20), watching.signal);
    }
    await loaded;
    const after = await waitSettled(agent, isIdle(1, 1), 90_000);
    context.note(`mixed-load: at rest ${formatSample(after)}`);
    const done = sum(load.reports.map(({ done }) => done));
    const refused = sum(load.reports.map(({ refused }) => refused));
    const unexpected = load.reports.flatMap(({ unexpected }) => unexpected);
    context.note(`mixed-load: done ${JSON.stringify(done)}, refused ${JSON.stringify(refused)}`);
    for (const line of [...unexpected, ...load.failures].slice(0, 20)) context.note(line);
    const errors = agent.logLines.filter(({ level, text }) => level === "error" || text);
    for (const line of errors.slice(0, 5)) context.note(JSON.stringify(line));
    if (load.stuck > 0) context.note(`mixed-load: ${load.stuck} client processes did not end`);
    const operations = Object.values(done).reduce((total, count) => total + count, 0);
    const times = (now: number, then: number) => now / then;
    return [
      exactly(
        `clients ${WORKERS * CLIENTS_PER_WORKER}, operations ${operations}, clients stopped ${
          load.stopped * CLIENTS_PER_WORKER
        }, killed ${load.killed * CLIENTS_PER_WORKER}, hostile connections ${load.hostile}`,
        operations > 0,
        true,
      ),
      exactly("unexpected answers", unexpected.length + load.failures.length, 0),
      exactly("errors logged", errors.length, 0),
      ...pulse.findings(),
      atMost("RSS under load", Math.max(...resident) / 2 ** 20, MAX_RSS_MIB, "MiB"),
      atMost("RSS at rest", after.rssBytes / 2 ** 20, MAX_RSS_MIB, "MiB"),
      // The heap takes minutes of this load to reach its size: a shorter run is all warm-up, and has no trend.
      ...(context.scale < 1 ? [] : [
        flat("RSS under load", resident),
        atMost("RSS at rest / baseline", times(after.rssBytes, before.rssBytes), 1.2, ""),
      ]),
      atMost(
        "descriptors at rest / baseline",
        times(after.descriptors, before.descriptors),
        1.2,
        "",
      ),
      exactly("streams at rest", after.streams, 0),
      exactly("connections at rest beside the one that asks", after.connections - 1, 0),
      exactly("processes at rest beside the one asked for", after.running - 1, 0),
    ];
  },
};
