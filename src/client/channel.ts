// One connection to one agent: grpc-js calls as promises, async iterables and AbortSignals.
// The only file of the client that makes grpc-js calls; must not know what the calls mean.
import "../wire/http2_guard.ts";
import {
  type ChannelCredentials,
  Client,
  connectivityState,
  Metadata,
  type MethodDefinition,
} from "@grpc/grpc-js";
import { closeConnections } from "./connections.ts";
import { abortable, deferred } from "./deferred.ts";
import { abortError, AteenvError, fromServiceError, throwIfAborted, VERSION_KEY } from "./error.ts";

/** How to reach the agent. */
export interface ChannelOptions {
  /** grpc-js target. */
  readonly target: string;
  /** For messages. */
  readonly display: string;
  readonly credentials: ChannelCredentials;
  /** Name to ask for in the TLS handshake; default: the host of the target. */
  readonly serverName?: string;
  readonly token: string | undefined;
  /** How long a connection may be silent before it is asked whether it lives, and how long that may take. */
  readonly keepaliveMs: number;
  readonly keepaliveTimeoutMs: number;
}

/** Options of one call. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number;
}

/** What every grpc-js call has. */
interface Cancellable {
  cancel(): void;
  on(event: "metadata", listener: (metadata: Metadata) => void): unknown;
  on(event: "status", listener: () => void): unknown;
}

/**
 * Both directions of a download or upload are limited by window / round trip: 8 MiB carries 80 MiB/s
 * over a round trip of 100 ms, and more than doubles the rate over loopback.
 */
const FLOW_CONTROL_WINDOW_BYTES = 8 * 1024 * 1024;

/** The agent sends at most 1 MiB; other servers of this API may use the largest that is common. */
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;

/** Messages handed to the transport ahead of the acknowledged ones: one on its way, one ready. */
const UPLOAD_WINDOW_MESSAGES = 2;

/** A grpc-js client whose calls end when it is closed. */
export class Channel {
  readonly display: string;
  readonly #client: Client;
  readonly #token: string | undefined;
  readonly #closing = new AbortController();
  readonly #calls = new Set<Promise<void>>();
  #agentVersion: string | undefined;
  #connectionsClosed: Promise<void> | undefined;

  constructor(options: ChannelOptions) {
    this.display = options.display;
    this.#token = options.token;
    this.#client = new Client(options.target, options.credentials, {
      "grpc-node.flow_control_window": FLOW_CONTROL_WINDOW_BYTES,
      "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
      "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
      "grpc.keepalive_time_ms": options.keepaliveMs,
      "grpc.keepalive_timeout_ms": options.keepaliveTimeoutMs,
      // The pauses are the retry policy's business; grpc-js's own would only add to them.
      "grpc.initial_reconnect_backoff_ms": 100,
      "grpc.min_reconnect_backoff_ms": 100,
      "grpc.max_reconnect_backoff_ms": 500,
      // A proxy of the environment is for the web, not for the sandbox next door.
      "grpc.enable_http_proxy": 0,
      "grpc.service_config_disable_resolution": 1,
      // Nothing is shared with another client: closing one is closing its connection.
      "grpc.use_local_subchannel_pool": 1,
      ...(options.serverName === undefined
        ? {}
        : { "grpc.ssl_target_name_override": options.serverName }),
    });
  }

  /** What the agent said that it is, once it has answered a call. */
  get agentVersion(): string | undefined {
    return this.#agentVersion;
  }

  /** Whether a request would leave at once. Starts to connect where not. */
  get isReady(): boolean {
    return this.#client.getChannel().getConnectivityState(true) === connectivityState.READY;
  }

  /** @throws {AteenvError} `unavailable` if there is no connection within `timeoutMs`. */
  async waitReady(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    if (this.isReady) return;
    const ready = new Promise<void>((resolve, reject) => {
      this.#client.waitForReady(Date.now() + timeoutMs, (error) => {
        if (error === undefined || error === null) return resolve();
        reject(
          new AteenvError(
            "unavailable",
            `cannot reach the agent at ${this.display}: no connection within ${timeoutMs} ms`,
            { cause: error },
          ),
        );
      });
    });
    await abortable(ready, signal);
  }

  /** One request, one answer. */
  async unary<I, O>(
    method: MethodDefinition<I, O>,
    request: I,
    options: CallOptions = {},
  ): Promise<O> {
    const { promise, resolve, reject } = deferred<O>();
    const call = this.#begin(options.signal, () =>
      this.#client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        this.#metadata(),
        options.timeoutMs === undefined ? {} : { deadline: Date.now() + options.timeoutMs },
        (error, value) => {
          if (error) reject(call.errorOf(error));
          else resolve(value!);
        },
      ));
    return await promise;
  }

  /** One request, many answers: one is asked for as one is taken, so a slow reader slows the agent. */
  async *stream<I, O>(
    method: MethodDefinition<I, O>,
    request: I,
    options: CallOptions = {},
  ): AsyncGenerator<O, void, undefined> {
    const call = this.#begin(options.signal, () =>
      this.#client.makeServerStreamRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        this.#metadata(),
        {},
      ));
    // grpc-js emits the error also after the iterator has gone.
    call.grpc.on("error", () => {});
    try {
      for await (const message of call.grpc) {
        // Also what has arrived before an abort is not delivered after it.
        throwIfAborted(options.signal);
        yield message as O;
      }
    } catch (error) {
      throw call.errorOf(error);
    } finally {
      call.grpc.cancel();
    }
  }

  /** Many requests, one answer. Stops asking for requests as soon as the agent has answered. */
  async upload<I, O>(
    method: MethodDefinition<I, O>,
    messages: AsyncIterable<I>,
    options: CallOptions = {},
  ): Promise<O> {
    const { promise, resolve, reject } = deferred<O>();
    let isAnswered = false;
    let wake: (() => void) | undefined;
    // Not Promise.race(): a promise that stays pending would keep every message that it was raced against.
    const orAnswered = <T>(promise: Promise<T>) =>
      new Promise<T | undefined>((resolve, reject) => {
        wake = () => resolve(undefined);
        promise.then(resolve, reject);
      });
    const call = this.#begin(options.signal, () =>
      this.#client.makeClientStreamRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        this.#metadata(),
        {},
        (error, value) => {
          isAnswered = true;
          wake?.();
          if (error) reject(call.errorOf(error));
          else resolve(value!);
        },
      ));
    call.grpc.on("error", () => {});
    const pump = async () => {
      const iterator = messages[Symbol.asyncIterator]();
      const inFlight: Promise<void>[] = [];
      for (;;) {
        const next = isAnswered ? undefined : await orAnswered(iterator.next());
        if (isAnswered || next === undefined) {
          // Not awaited: a source that hangs must not hold up the answer.
          iterator.return?.()?.catch(() => {});
          return;
        }
        if (next.done) break;
        const sent = deferred<void>();
        call.grpc.write(next.value, () => sent.resolve());
        inFlight.push(sent.promise);
        if (inFlight.length >= UPLOAD_WINDOW_MESSAGES) {
          await orAnswered(inFlight.shift()!);
        }
      }
      call.grpc.end();
    };
    pump().catch((error) => {
      reject(
        error instanceof AteenvError ? error : new AteenvError(
          "source-failed",
          `the source of the upload failed: ${error instanceof Error ? error.message : error}`,
          { cause: error },
        ),
      );
      call.grpc.cancel();
    });
    return await promise;
  }

  /** Ends all calls with `closed` and the connection with them; waits until they have ended. */
  async close(): Promise<void> {
    if (!this.#closing.signal.aborted) {
      this.#closing.abort(new AteenvError("closed", "the client is closed"));
    }
    await Promise.allSettled([...this.#calls]);
    await (this.#connectionsClosed ??= closeConnections(this.#client));
  }

  #metadata(): Metadata {
    const metadata = new Metadata();
    if (this.#token !== undefined) metadata.set("authorization", `Bearer ${this.#token}`);
    return metadata;
  }

  /** Ties a call to its signal and to the life of the channel. */
  #begin<C extends Cancellable>(signal: AbortSignal | undefined, start: () => C) {
    const closing = this.#closing.signal;
    if (closing.aborted) throw abortError(closing);
    if (signal?.aborted) throw abortError(signal);
    const grpc = start();
    const ended = deferred<void>();
    const onAbort = () => grpc.cancel();
    signal?.addEventListener("abort", onAbort, { once: true });
    closing.addEventListener("abort", onAbort, { once: true });
    this.#calls.add(ended.promise);
    grpc.on("metadata", (metadata) => {
      const version = metadata.get(VERSION_KEY)[0];
      if (version !== undefined) this.#agentVersion = String(version);
    });
    // The end of the call, not of whoever reads from it: a reader may be stuck with what it has got.
    grpc.on("status", () => {
      signal?.removeEventListener("abort", onAbort);
      closing.removeEventListener("abort", onAbort);
      this.#calls.delete(ended.promise);
      ended.resolve();
    });
    return {
      grpc,
      errorOf: (error: unknown): AteenvError => {
        if (closing.aborted) return abortError(closing);
        if (signal?.aborted) return abortError(signal);
        return fromServiceError(error, this.display);
      },
    };
  }
}
