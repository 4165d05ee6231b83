// The server as a whole: listen, guard, authenticate, serve, drain, close.
// Knows no service but health and reflection; must not import a room of the domain.
import "../wire/http2_guard.ts";
import {
  Server as GrpcServer,
  ServerCredentials,
  type ServiceDefinition,
  setLogger,
} from "@grpc/grpc-js";
import type { ServerHttp2Session } from "node:http2";
import type { Clock } from "../clock.ts";
import { AgentError } from "../errors.ts";
import type { Logger } from "../log.ts";
import { CallGate } from "../wire/call_gate.ts";
import { Connections, NO_BACKLOG } from "../wire/connections.ts";
import {
  healthServiceDefinition,
  reflectionAlphaServiceDefinition,
  reflectionServiceDefinition,
} from "../wire/definitions.ts";
import { addHttp2Options, http2ServerOf } from "../wire/grpc_internals.ts";
import { answerPlain } from "../wire/http2_plain.ts";
import { Sessions } from "../wire/sessions.ts";
import { TlsAcceptor, type TlsFiles } from "../wire/tls.ts";
import { listenUnix } from "../wire/unix_listener.ts";
import { type AuthMode, createAuthenticator } from "./auth.ts";
import { logCall } from "./call_log.ts";
import { Health } from "./health_service.ts";
import { Reflection } from "./reflection_service.ts";
import { createHttpHandler } from "./http_handler.ts";
import { type Gauge, Metrics } from "./metrics.ts";
import {
  DEFAULT_LIMITS,
  FLOW_WINDOW_BYTES,
  grpcOptions,
  http2Options,
  type ServerLimits,
} from "./server_limits.ts";
import { pathsOf, type ServiceEntry } from "./service_entry.ts";
import { openTelemetry } from "./telemetry.ts";

/** Where to listen. Port 0 lets the kernel choose. */
export type ListenAddress =
  | { readonly hostname: string; readonly port: number }
  | { readonly path: string };

/** Options of {@linkcode createServer}. */
export interface ServerOptions {
  readonly listen: readonly ListenAddress[];
  readonly services: readonly ServiceEntry[];
  readonly auth: AuthMode;
  /** TLS on the TCP listeners; `auth: mtls` needs its clientCaFile. */
  readonly tls?: TlsFiles;
  readonly limits?: Partial<ServerLimits>;
  /** Sent as `ateenv-version` with every response. */
  readonly version: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Gauges for /metrics and OpenTelemetry, beside those of the server itself. */
  readonly gauges?: readonly Gauge[];
}

/** A running server. */
export interface AgentServer extends AsyncDisposable {
  /** Where it listens, with the ports that the kernel chose. */
  readonly addresses: readonly ListenAddress[];
  /** readyz says 503 and health NOT_SERVING from now on; calls go on. Twice does nothing. */
  beginDrain(): void;
  /**
   * Drains, sends GOAWAY, lets running calls finish for at most `graceMs`, then ends what is left.
   * Resolves when no connection, socket or timer of the server is left.
   */
  close(graceMs: number): Promise<void>;
}

/** Milliseconds for the handlers of aborted calls to clean up when the server closes. */
const CLEANUP_MS = 1_000;

const HEALTH_PREFIX = "/grpc.health.v1.Health/";

// grpc-js logs what it cannot parse of a client's metadata, which may hold the token.
setLogger({ error() {}, info() {}, debug() {} });

/**
 * Listens on all of `options.listen` and serves.
 * @throws {AgentError} where the token file or a TLS file cannot be used
 * @throws {Error} of Deno.listen, where an address cannot be had
 */
export async function createServer(options: ServerOptions): Promise<AgentServer> {
  const server = new RunningServer(options);
  try {
    for (const address of options.listen) await server.listen(address);
  } catch (error) {
    await server.close(0);
    throw error;
  }
  return server;
}

class RunningServer implements AgentServer {
  readonly addresses: ListenAddress[] = [];
  readonly #options: ServerOptions;
  readonly #grpc: GrpcServer;
  readonly #gate: CallGate;
  readonly #connections: Connections;
  readonly #health: Health;
  readonly #metrics: Metrics;
  /** Handlers that have not returned, also of calls that are over. */
  readonly #working = new Set<Promise<void>>();
  readonly #sessions: Sessions;
  #streams = 0;
  #draining = false;
  #closed: Promise<void> | undefined;

  constructor(options: ServerOptions) {
    this.#options = options;
    const limits = { ...DEFAULT_LIMITS, ...options.limits };
    const { clock, log, version } = options;
    const auth = createAuthenticator(options.auth, clock, log);
    const tls = options.tls === undefined ? undefined : new TlsAcceptor(options.tls, clock, log);

    this.#health = new Health(options.services.map(({ name }) => name));
    const reflection = new Reflection([
      ...options.services.map(({ name }) => name),
      "grpc.health.v1.Health",
      "grpc.reflection.v1.ServerReflection",
      "grpc.reflection.v1alpha.ServerReflection",
    ]).implementation();
    const services: Omit<ServiceEntry, "name">[] = [
      ...options.services,
      { definition: healthServiceDefinition, implementation: this.#health.implementation() },
      { definition: reflectionServiceDefinition, implementation: reflection },
      { definition: reflectionAlphaServiceDefinition, implementation: reflection },
    ];
    const methods = services.flatMap(pathsOf);
    const newWork = new Set(
      options.services.filter(({ isRefusedInDrain }) => isRefusedInDrain).flatMap(pathsOf),
    );
    const gauges: Gauge[] = [
      { name: "ateenv_open_streams", help: "Calls under way.", read: () => this.#streams },
      {
        name: "ateenv_open_connections",
        help: "Connections that are open.",
        read: () => this.#connections.size,
      },
      ...options.gauges ?? [],
    ];
    this.#metrics = new Metrics(methods, gauges);
    const observe = openTelemetry({ version, clock, methods, gauges });
    const answerHttp = createHttpHandler({
      draining: () => this.#draining,
      auth,
      metrics: this.#metrics,
    });

    this.#gate = new CallGate({
      clock,
      log,
      version,
      requestTimeoutMs: limits.requestTimeoutMs,
      maxMessageBytes: limits.maxMessageBytes,
      working: (work) => {
        this.#working.add(work);
        work.finally(() => this.#working.delete(work));
      },
      finished: (call) => {
        this.#metrics.callFinished(call);
        observe?.(call);
        logCall(log, call);
      },
      refusal: (method, headers, session) => {
        if (method.startsWith(HEALTH_PREFIX)) return undefined;
        const refusal = auth.refusal({
          authorization: headers.authorization,
          certified: this.#sessions.connectionOf(session)?.certified ?? false,
        });
        if (refusal !== undefined || !this.#draining || !newWork.has(method)) return refusal;
        return new AgentError("unavailable", "shutting down");
      },
      answerHttp: (stream, headers) => {
        const connection = this.#sessions.connectionOf(stream.session as ServerHttp2Session);
        const certified = connection?.certified ?? false;
        answerPlain(stream, headers, (request) => answerHttp(request, certified), version);
      },
      admitted: (session, method, change) => {
        this.#streams += change;
        const connection = this.#sessions.connectionOf(session);
        if (connection === undefined || method.startsWith(HEALTH_PREFIX)) return;
        connection.calls += change;
        connection.idleSinceMs = clock.nowMs();
      },
      connectionOf: (session) =>
        this.#sessions.connectionOf(session) ?? { peer: "unknown", backlog: NO_BACKLOG },
    });

    this.#grpc = new GrpcServer({ ...grpcOptions(limits), interceptors: [this.#gate.interceptor] });
    for (const { definition, implementation } of services) {
      this.#grpc.addService(definition as ServiceDefinition, implementation);
    }
    addHttp2Options(this.#grpc, http2Options(limits));
    const injector = this.#grpc.createConnectionInjector(ServerCredentials.createInsecure());
    this.#sessions = new Sessions({
      clock,
      windowBytes: FLOW_WINDOW_BYTES,
      inject: (duplex) => injector.injectConnection(duplex),
    });
    const http2 = http2ServerOf(this.#grpc);
    this.#gate.guard(http2);
    http2.prependListener("session", (session) => this.#sessions.opened(session));
    http2.on("sessionError", () => {});

    this.#connections = new Connections({
      clock,
      log,
      maxConnections: limits.maxConnections,
      openingTimeoutMs: limits.openingTimeoutMs,
      ...(tls === undefined
        ? {}
        : { secure: (transport, connection) => tls.secure(transport, connection) }),
      serveHttp1: (request, connection) => answerHttp(request, connection.certified),
      serveHttp2: (duplex, connection) => this.#sessions.serve(duplex, connection),
    });
  }

  async listen(address: ListenAddress): Promise<void> {
    if ("path" in address) {
      this.#connections.listen(await listenUnix(address.path));
      this.addresses.push(address);
    } else {
      const listener = Deno.listen({ hostname: address.hostname, port: address.port });
      this.#connections.listen(listener);
      this.addresses.push({ hostname: address.hostname, port: listener.addr.port });
    }
  }

  beginDrain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#health.drain();
  }

  close(graceMs: number): Promise<void> {
    if (this.#closed === undefined) {
      // The clock's timers do not keep the process alive, and by now nothing else may.
      const alive = setInterval(() => {}, 2 ** 30);
      this.#closed = this.#close(graceMs).finally(() => clearInterval(alive));
    }
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close(0);
  }

  async #close(graceMs: number): Promise<void> {
    this.beginDrain();
    const grace = Promise.withResolvers<void>();
    const timer = this.#options.clock.setTimer(graceMs, grace.resolve);
    const stopped = this.#connections.stopListening();
    this.#sessions.close();
    await Promise.race([this.#connections.waitEmpty(), grace.promise]);
    timer.cancel();
    await stopped;
    await this.#connections.closeAll();
    this.#gate.close();
    await this.#waitHandlers();
    this.#grpc.forceShutdown();
    for (const address of this.addresses) {
      // Somebody may have cleaned up already.
      if ("path" in address) await Deno.remove(address.path).catch(() => {});
    }
  }

  /** All calls were aborted: their handlers clean up after themselves, but one that hangs is left alone. */
  async #waitHandlers(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = this.#options.clock.setTimer(CLEANUP_MS, resolve);
    await Promise.race([Promise.all(this.#working), promise]);
    timer.cancel();
  }
}

/** For callers that build an address themselves. */
export function formatAddress(address: ListenAddress): string {
  if ("path" in address) return `unix:${address.path}`;
  const { hostname, port } = address;
  return hostname.includes(":") ? `[${hostname}]:${port}` : `${hostname}:${port}`;
}
