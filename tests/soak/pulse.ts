// Asks an agent for a process again and again while something else goes on, and keeps the times.
// Must not import the product.
import { AgentApi } from "../helpers/agent_api.ts";
import { atMost, exactly, type Finding } from "./scenario.ts";

/** What counts as not answered. */
const SILENT_MS = 20_000;
const PAUSE_MS = 50;

/** See the head of this file. */
export class Pulse implements AsyncDisposable {
  /** Milliseconds that each answer took. */
  readonly latencies: number[] = [];
  /** What was answered instead. */
  readonly failures: string[] = [];
  readonly #api: AgentApi;
  readonly #processId: string;
  readonly #beating: Promise<void>;
  readonly #stop = new AbortController();

  private constructor(api: AgentApi, processId: string) {
    this.#api = api;
    this.#processId = processId;
    this.#beating = this.#beat();
  }

  /** Starts a process to ask for: one connection, and one running process until disposal. */
  static async start(address: string): Promise<Pulse> {
    const api = new AgentApi(address);
    return new Pulse(api, await api.start(["sleep", "100000"]));
  }

  async #beat(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const started = performance.now();
      try {
        await this.#api.get(this.#processId, { deadlineMs: SILENT_MS });
        this.latencies.push(performance.now() - started);
      } catch (error) {
        this.failures.push(String(error));
      }
      // Asking at a steady pace is the load that this is meant to be.
      const pause = Promise.withResolvers<void>();
      const timer = setTimeout(pause.resolve, PAUSE_MS);
      signal.addEventListener("abort", () => pause.resolve(), { once: true });
      await pause.promise;
      clearTimeout(timer);
    }
  }

  /** Stops asking. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#beating;
    await this.#api.kill(this.#processId);
    this.#api[Symbol.dispose]();
  }

  /** Call after disposal, or while it goes on. */
  findings(): Finding[] {
    const sorted = this.latencies.toSorted((a, b) => a - b);
    const at = (share: number) => sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
    if (this.failures.length > 0) console.error(this.failures.slice(0, 5).join("\n"));
    return [
      exactly("GetProcess not answered", this.failures.length, 0),
      atMost(
        `GetProcess: ${sorted.length} answers, p50 ${at(0.5).toFixed(1)} ms, p99 ${
          at(0.99).toFixed(0)
        } ms, longest`,
        at(1),
        SILENT_MS,
        "ms",
      ),
    ];
  }
}
