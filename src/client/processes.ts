// Starting processes. The one call that must never be made twice: a lost answer is reported, not
// bridged.
import { create } from "@bufbuild/protobuf";
import { StartProcessRequestSchema } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { processServiceDefinition } from "../wire/definitions.ts";
import type { Channel } from "./channel.ts";
import { abortable } from "./deferred.ts";
import { AteenvError, isFromAgent, throwIfAborted } from "./error.ts";
import { type AbortOptions, ProcessHandle } from "./process.ts";
import { retried, type RetryPolicy } from "./retry.ts";

/** How to start a process. */
export interface StartOptions extends AbortOptions {
  /** Working directory; relative to the workspace, which is the default. */
  readonly cwd?: string;
  /** Variables on top of those that the agent gives to every process. */
  readonly env?: Readonly<Record<string, string>>;
}

/** How long an aborted start waits for the answer, which names what must be killed. */
const ABORTED_START_MS = 5_000;

/** How long one attempt to connect may take before the request is made. */
const CONNECT_ATTEMPT_MS = 5_000;

/** The processes of a sandbox. */
export class Processes {
  readonly #channel: Channel;
  readonly #retry: RetryPolicy;

  /** @ignore Made by `connect`. */
  constructor(channel: Channel, retry: RetryPolicy) {
    this.#channel = channel;
    this.#retry = retry;
  }

  /**
   * Starts `argv`, without a shell, in the background. A program that cannot be run is no error here:
   * its status is `failed` with exit code 127 or 126, and its stderr says why.
   *
   * An abort before the answer kills what may have been started and waits for that; an abort
   * afterwards does nothing: use {@linkcode ProcessHandle.kill}.
   *
   * ```ts
   * import { connect } from "@ateenv/ateenvd";
   *
   * await using client = await connect();
   * const process = await client.processes.start(["ls", "-l"], { cwd: "/", env: { LC_ALL: "C" } });
   * const { exitCode } = await process.wait();
   * ```
   *
   * @throws {AteenvError} `invalid-argument`, `resource-exhausted`, `permission-denied`, ...;
   * `unavailable` if nothing was sent; `outcome-unknown` if the connection was lost before the
   * answer: it may run, and it is not started again.
   */
  async start(argv: readonly string[], options: StartOptions = {}): Promise<ProcessHandle> {
    const { signal, cwd = "", env = {} } = options;
    throwIfAborted(signal);
    const request = create(StartProcessRequestSchema, {
      command: [...argv],
      cwd,
      env: { ...env },
    });
    // Only with a connection at hand does a failure of the call mean that the request was sent.
    if (!this.#channel.isReady) {
      await retried(
        this.#retry,
        signal,
        () => this.#channel.waitReady(CONNECT_ATTEMPT_MS, signal),
      );
    }
    const giveUp = new AbortController();
    const answer = this.#channel.unary(processServiceDefinition.startProcess, request, {
      signal: giveUp.signal,
    });
    try {
      const { processId } = await abortable(answer, signal);
      return this.get(processId);
    } catch (error) {
      if (signal?.aborted) await this.#killLate(answer, giveUp);
      throw toStartError(error);
    }
  }

  /** A handle of a process that was started before, here or elsewhere. Asks the agent nothing. */
  get(id: string): ProcessHandle {
    return new ProcessHandle(id, this.#channel, this.#retry);
  }

  /** The id that would have to be killed is in the answer: cancelling the call would lose it. */
  async #killLate(answer: Promise<{ processId: string }>, giveUp: AbortController): Promise<void> {
    const timer = setTimeout(() => giveUp.abort(), ABORTED_START_MS);
    try {
      const { processId } = await answer;
      await this.get(processId).kill({ signal: giveUp.signal });
    } catch {
      // The caller learns that the start was aborted; what became of it is best effort.
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Statuses that may stand for "the answer was lost", where the agent did not make them itself. */
const LOST_ANSWER_KINDS: readonly string[] = ["unavailable", "internal"];

function toStartError(error: unknown): unknown {
  if (!(error instanceof AteenvError) || !LOST_ANSWER_KINDS.includes(error.kind)) return error;
  if (isFromAgent(error)) return error;
  return new AteenvError(
    "outcome-unknown",
    "the connection was lost before the agent answered: the command may have been started " +
      `(${error.message})`,
    { cause: error },
  );
}
