// A process in the sandbox, seen from outside: its state, its output, its end.
// Calls that change nothing are made again after a lost connection; output goes on at its offset.
import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import {
  GetProcessRequestSchema,
  KillProcessRequestSchema,
  OutputSource as WireSource,
  type Process,
  ProcessStatus as WireStatus,
  StreamProcessOutputsRequestSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { processServiceDefinition } from "../wire/definitions.ts";
import { toReadableStream } from "./byte_stream.ts";
import type { Channel } from "./channel.ts";
import { AteenvError } from "./error.ts";
import { retried, Retry, type RetryPolicy } from "./retry.ts";

/** `completed` is exit code 0, `failed` any other, `terminated` death by a signal. */
export type ProcessStatus = "running" | "completed" | "failed" | "terminated";

/** What the agent knows of a process. */
export interface ProcessState {
  /** Names the process; opaque. */
  readonly id: string;
  /** Where it is in its life. */
  readonly status: ProcessStatus;
  /** 0 while it runs; 128 + signal for `terminated`. */
  readonly exitCode: number;
  /** By the sandbox's clock. */
  readonly startedAt: Date | undefined;
  /** Undefined while it runs. */
  readonly finishedAt: Date | undefined;
}

/** A piece of output, as the process wrote it. Pieces of one source are in order. */
export interface OutputPiece {
  /** The stream that it was written to. */
  readonly source: "stdout" | "stderr";
  /** The bytes, cut anywhere, also within a character. */
  readonly data: Uint8Array;
}

/** What every method takes. */
export interface AbortOptions {
  /** Ends the call (never the process) with `cancelled`, or `deadline-exceeded` for a timeout. */
  readonly signal?: AbortSignal | undefined;
}

/** Which output to read. */
export interface OutputOptions extends AbortOptions {
  /** First byte of stdout to read; Infinity leaves stdout out. Default 0. */
  readonly stdoutOffset?: number;
  /** First byte of stderr to read; Infinity leaves stderr out. Default 0. */
  readonly stderrOffset?: number;
  /** Goes on until the process has finished (the default), or ends with what is there now. */
  readonly follow?: boolean;
}

const STATUS_NAMES: Readonly<Record<WireStatus, ProcessStatus>> = {
  [WireStatus.UNSPECIFIED]: "running",
  [WireStatus.RUNNING]: "running",
  [WireStatus.COMPLETED]: "completed",
  [WireStatus.FAILED]: "failed",
  [WireStatus.TERMINATED]: "terminated",
};

/** Past the end of any output: nothing of that stream is sent. */
const PAST_THE_END = 2n ** 63n - 1n;

/** Checks of a process that should be finished, since its follow has ended, but is not yet said to be. */
const MAX_FINAL_CHECKS = 5;

/**
 * A process in the sandbox. Holds no resource of its own: forgetting a handle leaves the process as it is.
 */
export class ProcessHandle {
  /** The agent's name for the process; `client.processes.get(id)` makes a handle of it, anywhere. */
  readonly id: string;
  readonly #channel: Channel;
  readonly #retry: RetryPolicy;
  #stdout: ReadableStream<Uint8Array<ArrayBuffer>> | undefined;
  #stderr: ReadableStream<Uint8Array<ArrayBuffer>> | undefined;

  /** @ignore Made by `client.processes`. */
  constructor(id: string, channel: Channel, retry: RetryPolicy) {
    this.id = id;
    this.#channel = channel;
    this.#retry = retry;
  }

  /**
   * The output, from the offsets on. Exact also over lost connections: it goes on at the byte where it
   * was cut. Without an error, the end of a follow means that the process has finished and that all of
   * its output was there. Each call is a reader of its own; leaving the loop ends it.
   *
   * ```ts
   * import { connect } from "@ateenv/ateenvd";
   *
   * await using client = await connect();
   * const process = await client.processes.start(["sh", "-c", "echo out; echo err >&2"]);
   * for await (const { source, data } of process.output()) {
   *   console.log(source, new TextDecoder().decode(data));
   * }
   * ```
   *
   * @throws {AteenvError} `out-of-range` where bytes from an offset on are no longer kept (`details` name
   * the first that are), `not-found`, `unavailable` once the retry policy gives up.
   */
  async *output(options: OutputOptions = {}): AsyncGenerator<OutputPiece, void, undefined> {
    const { signal, follow = true } = options;
    const offsets = {
      stdout: toWireOffset(options.stdoutOffset ?? 0),
      stderr: toWireOffset(options.stderrOffset ?? 0),
    };
    const retry = new Retry(this.#retry);
    for (;;) {
      try {
        const chunks = this.#channel.stream(
          processServiceDefinition.streamProcessOutputs,
          create(StreamProcessOutputsRequestSchema, {
            processId: this.id,
            stdoutOffset: offsets.stdout,
            stderrOffset: offsets.stderr,
            follow,
          }),
          { signal },
        );
        for await (const { source, data } of chunks) {
          retry.progress();
          if (data.length === 0) continue;
          const name = source === WireSource.STDERR ? "stderr" : "stdout";
          offsets[name] += BigInt(data.length);
          yield { source: name, data };
        }
        return;
      } catch (error) {
        await retry.pauseAfter(error, signal);
      }
    }
  }

  /** All of stdout, from the first byte on, until the process has finished. One stream per handle. */
  get stdout(): ReadableStream<Uint8Array<ArrayBuffer>> {
    return this.#stdout ??= this.#streamOf({ stderrOffset: Infinity });
  }

  /** All of stderr, alike. Independent of stdout: neither waits for the other to be read. */
  get stderr(): ReadableStream<Uint8Array<ArrayBuffer>> {
    return this.#stderr ??= this.#streamOf({ stdoutOffset: Infinity });
  }

  /**
   * Waits for the end of the process, without fetching its output and without polling.
   *
   * @throws {AteenvError} `not-found`, `unavailable` once the retry policy gives up.
   */
  async wait(options: AbortOptions = {}): Promise<ProcessState> {
    const retry = new Retry(this.#retry);
    for (let checks = 1;; checks++) {
      for await (
        const _ of this.output({ ...options, stdoutOffset: Infinity, stderrOffset: Infinity })
      );
      const state = await this.status(options);
      if (state.status !== "running") return state;
      // An agent never says so. Something on the way that ends a cut stream with OK does.
      const error = new AteenvError(
        "unavailable",
        `the follow of process ${this.id} ended with OK, but the process is still running`,
      );
      if (checks >= MAX_FINAL_CHECKS) throw error;
      await retry.pauseAfter(error, options.signal);
    }
  }

  /**
   * What the agent knows of the process now.
   *
   * @throws {AteenvError} `not-found`, `unavailable` once the retry policy gives up.
   */
  async status(options: AbortOptions = {}): Promise<ProcessState> {
    const request = create(GetProcessRequestSchema, { processId: this.id });
    return toState(
      await retried(
        this.#retry,
        options.signal,
        () => this.#channel.unary(processServiceDefinition.getProcess, request, options),
      ),
    );
  }

  /**
   * Kills the process and all of its descendants, and returns its exit code once they are gone. A
   * process that has already finished keeps its code.
   *
   * @throws {AteenvError} `deadline-exceeded` where something survived, `not-found`, `unavailable`.
   */
  async kill(options: AbortOptions = {}): Promise<number> {
    const request = create(KillProcessRequestSchema, { processId: this.id });
    const { exitCode } = await retried(
      this.#retry,
      options.signal,
      () => this.#channel.unary(processServiceDefinition.killProcess, request, options),
    );
    return exitCode;
  }

  #streamOf(options: OutputOptions): ReadableStream<Uint8Array<ArrayBuffer>> {
    const output = (signal: AbortSignal) => this.output({ ...options, signal });
    return toReadableStream(async function* (signal) {
      for await (const { data } of output(signal)) yield data;
    });
  }
}

function toWireOffset(offset: number): bigint {
  if (offset === Infinity) return PAST_THE_END;
  if (Number.isSafeInteger(offset) && offset >= 0) return BigInt(offset);
  throw new AteenvError("invalid-argument", `an offset is a count of bytes, not ${offset}`);
}

function toState(process: Process): ProcessState {
  return {
    id: process.processId,
    status: STATUS_NAMES[process.status] ?? "running",
    exitCode: process.exitCode,
    startedAt: toDate(process.startedAt),
    finishedAt: toDate(process.finishedAt),
  };
}

function toDate(timestamp: Timestamp | undefined): Date | undefined {
  return timestamp === undefined ? undefined : timestampDate(timestamp);
}
