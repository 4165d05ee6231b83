// When and how long to wait before a call is made again.
// Decides on kinds only; must not make calls.
import { abortError, AteenvError, isFromAgent } from "./error.ts";

/** How a client bridges a lost connection. */
export interface RetryPolicy {
  /** Longest first pause, in milliseconds; each further one is twice as long. */
  readonly initialDelayMs: number;
  /** Longest pause, in milliseconds. */
  readonly maxDelayMs: number;
  /** Without any progress for this long, in milliseconds, the call fails. 0: never try again. */
  readonly giveUpAfterMs: number;
  /**
   * Told once the first attempt to go on has failed as well, of each call: that somebody has to wait, for
   * `leftMs` milliseconds at most.
   */
  readonly onOutage?: (error: AteenvError, leftMs: number) => void;
}

/** A connection that was cut is usually there again at once: only the second failure in a row is an outage. */
const OUTAGE_FAILURES = 2;

/** Bridges the restart of an agent and the resume of a sandbox. */
export const DEFAULT_RETRY: RetryPolicy = {
  initialDelayMs: 100,
  maxDelayMs: 3_000,
  giveUpAfterMs: 60_000,
};

/**
 * A status that only something on the way can have made is retried until the policy gives up. Routers end
 * a stream that they cut with these kinds too, but they may also be the agent's answer: where it says so,
 * that is final, and otherwise they are retried a few times only.
 */
const AMBIGUOUS_KINDS: readonly string[] = ["internal", "deadline-exceeded"];
const MAX_AMBIGUOUS_FAILURES = 3;

/** Time and chance, replaced in tests. */
export interface RetryPorts {
  nowMs(): number;
  random(): number;
  /** Resolves after `delayMs`, rejects when the signal is aborted. Keeps the process alive. */
  sleep(delayMs: number, signal: AbortSignal | undefined): Promise<void>;
}

/** The real ports. */
export const systemPorts: RetryPorts = {
  nowMs: () => performance.now(),
  random: () => Math.random(),
  sleep: (delayMs, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(abortError(signal));
      const onAbort = () => {
        clearTimeout(timer);
        reject(abortError(signal!));
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      }, delayMs);
      signal?.addEventListener("abort", onAbort, { once: true });
    }),
};

/** The attempts of one call. */
export class Retry {
  readonly #policy: RetryPolicy;
  readonly #ports: RetryPorts;
  #failures = 0;
  #failingSinceMs: number | undefined;

  constructor(policy: RetryPolicy, ports: RetryPorts = systemPorts) {
    this.#policy = policy;
    this.#ports = ports;
  }

  /** Something arrived: the bound counts anew. */
  progress(): void {
    this.#failures = 0;
    this.#failingSinceMs = undefined;
  }

  /**
   * Waits before the next attempt: between half and all of a pause that doubles, so that many clients
   * of one agent do not come back at once.
   *
   * @throws `error` itself where a further attempt cannot help or the bound is reached.
   */
  async pauseAfter(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted) throw abortError(signal);
    if (!(error instanceof AteenvError)) throw error;
    const ambiguous = AMBIGUOUS_KINDS.includes(error.kind);
    if (ambiguous ? isFromAgent(error) : error.kind !== "unavailable") throw error;
    this.#failures += 1;
    if (ambiguous && this.#failures >= MAX_AMBIGUOUS_FAILURES) throw error;
    const nowMs = this.#ports.nowMs();
    this.#failingSinceMs ??= nowMs;
    const leftMs = this.#failingSinceMs + this.#policy.giveUpAfterMs - nowMs;
    if (leftMs <= 0) throw error;
    if (this.#failures === OUTAGE_FAILURES) this.#policy.onOutage?.(error, leftMs);
    const ceilingMs = Math.min(
      this.#policy.maxDelayMs,
      this.#policy.initialDelayMs * 2 ** Math.min(this.#failures - 1, 30),
    );
    const delayMs = ceilingMs * (0.5 + 0.5 * this.#ports.random());
    await this.#ports.sleep(Math.min(delayMs, leftMs), signal);
  }
}

/** Makes an idempotent call until it succeeds or `policy` gives up. */
export async function retried<T>(
  policy: RetryPolicy,
  signal: AbortSignal | undefined,
  attempt: () => Promise<T>,
): Promise<T> {
  const retry = new Retry(policy);
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      await retry.pauseAfter(error, signal);
    }
  }
}
