// A connected client: what can be done with one sandbox.
// Composition only; the calls are in processes.ts, process.ts and files.ts.
import type { Address } from "./address.ts";
import { joinBytes } from "./byte_stream.ts";
import type { Channel } from "./channel.ts";
import { AteenvError } from "./error.ts";
import { Files } from "./files.ts";
import type { AbortOptions, ProcessStatus } from "./process.ts";
import { Processes, type StartOptions } from "./processes.ts";
import { type Health, readHealth, type TlsFiles } from "./readyz.ts";
import type { RetryPolicy } from "./retry.ts";

/** How to run a shell command. */
export interface ShellOptions extends StartOptions {
  /** Most bytes of output to hold, both streams together. Default 64 MiB. */
  readonly maxOutputBytes?: number;
}

/** How a shell command ended. */
export interface ShellResult {
  /** As UTF-8; what is none becomes U+FFFD. */
  readonly stdout: string;
  /** Alike. */
  readonly stderr: string;
  /** 128 + signal where a signal ended it. */
  readonly exitCode: number;
  /** `completed`, `failed` or `terminated`. */
  readonly status: ProcessStatus;
}

const DEFAULT_MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

/** How long a command whose caller has gone may take to die. */
const ABORTED_KILL_MS = 5_000;

/** A connection to the agent of one sandbox; `await using` closes it. */
export class AteenvClient implements AsyncDisposable {
  /** Starts processes, and finds those that were started. */
  readonly processes: Processes;
  /** Reads and writes files. */
  readonly files: Files;
  readonly #channel: Channel;
  readonly #address: Address;
  readonly #tls: TlsFiles;

  /** @ignore Made by `connect`. */
  constructor(channel: Channel, address: Address, tls: TlsFiles, retry: RetryPolicy) {
    this.#channel = channel;
    this.#address = address;
    this.#tls = tls;
    this.processes = new Processes(channel, retry);
    this.files = new Files(channel, retry);
  }

  /** The agent's version, where it told one. */
  get agentVersion(): string | undefined {
    return this.#channel.agentVersion;
  }

  /**
   * Runs `command` with `sh -c` and waits for its end. An abort kills it.
   *
   * ```ts
   * import { connect } from "@ateenv/ateenvd";
   *
   * await using client = await connect();
   * const { stdout, stderr, exitCode } = await client.shell("ls | wc -l");
   * ```
   *
   * @throws {AteenvError} `resource-exhausted` where it writes more than `maxOutputBytes` (it is killed).
   */
  async shell(command: string, options: ShellOptions = {}): Promise<ShellResult> {
    const { maxOutputBytes = DEFAULT_MAX_OUTPUT_BYTES, signal } = options;
    const process = await this.processes.start(["sh", "-c", command], options);
    const output = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
    let bytes = 0;
    try {
      for await (const { source, data } of process.output({ signal })) {
        bytes += data.length;
        if (bytes > maxOutputBytes) {
          throw new AteenvError(
            "resource-exhausted",
            `the command wrote more than ${maxOutputBytes} bytes and was killed: ` +
              "use processes.start() and read its output as it comes",
          );
        }
        output[source].push(data);
      }
      const { exitCode, status } = await process.wait({ signal });
      const text = (parts: Uint8Array[]) => new TextDecoder().decode(joinBytes(parts));
      return { stdout: text(output.stdout), stderr: text(output.stderr), exitCode, status };
    } catch (error) {
      // The error that ended the wait is the one to report.
      await process.kill({ signal: AbortSignal.timeout(ABORTED_KILL_MS) }).catch(() => {});
      throw error;
    }
  }

  /**
   * Whether the agent takes work. Needs no token, and is not retried.
   *
   * @throws {AteenvError} `unavailable` if nobody answers.
   */
  async health(options: AbortOptions = {}): Promise<Health> {
    return await readHealth(this.#address, this.#tls, options.signal);
  }

  /** Ends all calls that are under way with `closed`, then the connection. Processes go on. */
  async close(): Promise<void> {
    await this.#channel.close();
  }

  /** Same as {@linkcode close}. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
