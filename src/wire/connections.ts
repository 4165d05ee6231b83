// Listening sockets and the connections from them: accept, limit, sniff, hand over, close.
// Must not import grpc-js or a service. Who is behind a connection is settled above.
import type { Clock } from "../clock.ts";
import { errorFields, type Logger } from "../log.ts";
import { type Backlog, ConnectionDuplex } from "./connection_duplex.ts";
import { FrameInspector } from "./frame_inspector.ts";
import { type HttpAnswer, type HttpRequest, serveHttp1 } from "./http1.ts";
import { sniff } from "./sniff.ts";
import { DenoTransport, type Transport } from "./transport.ts";

/** What is done with connections, and how many there may be. */
export interface ConnectionsOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Most connections at a time. Beyond it the longest idle one goes, or else the new one. */
  readonly maxConnections: number;
  /** Milliseconds for a TLS handshake, the first bytes, and a whole HTTP/1.1 request. */
  readonly openingTimeoutMs: number;
  /** Wraps an accepted connection in TLS. */
  readonly secure?: (transport: Transport, connection: Connection) => Promise<Transport>;
  /** Takes over a connection that speaks HTTP/2. */
  serveHttp2(duplex: ConnectionDuplex, connection: Connection): void;
  /** Answers one HTTP/1.1 request. */
  serveHttp1(request: HttpRequest, connection: Connection): HttpAnswer | Promise<HttpAnswer>;
}

/** That of a connection which has nothing to send, or is gone. */
export const NO_BACKLOG: Backlog = { isFull: false, whenDrained() {}, cancel() {} };

/** One connection, from accept to close. */
export class Connection {
  /** Calls under way that were let in. */
  calls = 0;
  /** When the connection last became idle, on the clock's scale. */
  idleSinceMs: number;
  /** Whether the peer showed a certificate that our client CA signed, or came by the unix socket. */
  certified = false;
  /** Told to go; does not count any more. */
  evicted = false;
  /** What waits for the kernel. */
  backlog = NO_BACKLOG;
  /** Asks the peer to take another connection for its next calls; those under way go on. */
  retire: () => void = () => {};
  /** Ends it at once; a peer that speaks HTTP/2 is told, and whether it is to blame. */
  end: (hostile: boolean) => void;

  constructor(readonly transport: Transport, nowMs: number) {
    this.idleSinceMs = nowMs;
    this.end = () => transport.close();
  }

  /** Address for the log. */
  get peer(): string {
    return this.transport.peer;
  }
}

/** Milliseconds before accepting goes on after an error such as EMFILE, for which there is no event. */
const ACCEPT_RETRY_MS = 50;
const WARN_AGAIN_MS = 10_000;

/** See the head of this file. */
export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #listeners = new Map<Deno.Listener, Promise<void>>();
  readonly #open = new Map<Connection, Promise<void>>();
  readonly #http2 = new Map<Connection, ConnectionDuplex>();
  #closing = false;
  #warnedMs = -Infinity;
  #evicted = 0;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  /** Connections that are open. */
  get size(): number {
    return this.#open.size;
  }

  /** Accepts from `listener` until {@linkcode stopListening}; owns it from here on. */
  listen(listener: Deno.Listener): void {
    this.#listeners.set(listener, this.#accept(listener));
  }

  /** Closes the listening sockets; connections live on. */
  async stopListening(): Promise<void> {
    this.#closing = true;
    for (const listener of this.#listeners.keys()) listener.close();
    await Promise.all(this.#listeners.values());
    this.#listeners.clear();
  }

  /** Resolves when no connection is open any more. */
  async waitEmpty(): Promise<void> {
    while (this.#open.size > 0) await Promise.all(this.#open.values());
  }

  /** Closes whatever is open, at once, and waits for its end. */
  async closeAll(): Promise<void> {
    for (const connection of this.#open.keys()) {
      this.#http2.get(connection)?.destroy();
      connection.transport.close();
    }
    await this.waitEmpty();
  }

  async #accept(listener: Deno.Listener): Promise<void> {
    while (!this.#closing) {
      try {
        this.#admit(await listener.accept());
      } catch (error) {
        if (this.#closing) return;
        // EMFILE and the like: let something be closed and go on.
        this.#warn(error);
        this.#evict();
        await this.#pause();
      }
    }
  }

  /** A lack of descriptors lasts; it is said now and then, not with every attempt. */
  #warn(error: unknown): void {
    const now = this.#options.clock.nowMs();
    if (now - this.#warnedMs < WARN_AGAIN_MS) return;
    this.#warnedMs = now;
    this.#options.log.warn("cannot accept connections", errorFields(error));
  }

  /** The clock's timers do not keep the process alive, and without a pending accept nothing else may. */
  async #pause(): Promise<void> {
    const alive = setInterval(() => {}, 2 ** 30);
    await new Promise<void>((resolve) => this.#options.clock.setTimer(ACCEPT_RETRY_MS, resolve));
    clearInterval(alive);
  }

  #admit(conn: Deno.Conn): void {
    let transport: Transport;
    try {
      transport = new DenoTransport(conn);
    } catch {
      // setNoDelay fails where the peer is gone already.
      conn.close();
      return;
    }
    if (this.#open.size - this.#evicted >= this.#options.maxConnections && !this.#evict()) {
      transport.close();
      return;
    }
    const connection = new Connection(transport, this.#options.clock.nowMs());
    const served = this.#serve(transport, connection)
      .catch((error) => {
        this.#options.log.debug("connection failed", {
          peer: transport.peer,
          ...errorFields(error),
        });
      })
      .finally(() => {
        transport.close();
        this.#http2.delete(connection);
        this.#open.delete(connection);
        if (connection.evicted) this.#evicted--;
      });
    this.#open.set(connection, served);
  }

  /** Ends the connection that has been idle for longest; false where none is idle. */
  #evict(): boolean {
    let oldest: Connection | undefined;
    for (const connection of this.#open.keys()) {
      if (connection.calls > 0 || connection.evicted) continue;
      if (oldest === undefined || connection.idleSinceMs < oldest.idleSinceMs) oldest = connection;
    }
    if (oldest === undefined) return false;
    oldest.evicted = true;
    this.#evicted++;
    oldest.end(false);
    return true;
  }

  async #serve(accepted: Transport, connection: Connection): Promise<void> {
    const { clock, secure, openingTimeoutMs } = this.#options;
    const opening = clock.setTimer(openingTimeoutMs, () => accepted.close());
    try {
      // Who can reach a unix socket is settled by the file system.
      const local = accepted.remote.port === undefined;
      if (local) connection.certified = true;
      const transport = secure === undefined || local
        ? accepted
        : await secure(accepted, connection);
      connection.end = () => transport.close();
      const sniffed = await sniff(transport);
      if (sniffed === undefined || sniffed.protocol === "garbage") return;
      if (sniffed.protocol === "http1") {
        await serveHttp1(
          transport,
          sniffed.first,
          (request) => this.#options.serveHttp1(request, connection),
          clock,
        );
        return;
      }
      opening.cancel();
      await this.#serveHttp2(transport, sniffed.first, connection);
    } finally {
      opening.cancel();
    }
  }

  async #serveHttp2(
    transport: Transport,
    first: Uint8Array,
    connection: Connection,
  ): Promise<void> {
    const { clock, log } = this.#options;
    const inspector = new FrameInspector(
      clock,
      () => connection.retire(),
      (stream) => duplex.abandonAnswer(stream),
    );
    const duplex: ConnectionDuplex = new ConnectionDuplex(transport, {
      clock,
      first,
      inspect: (bytes) => inspector.inspect(bytes),
      isHttp2: true,
      onSent: (bytes) => inspector.sent(bytes),
      onFault: (fault) => {
        log.warn("connection closed", { peer: transport.peer, reason: fault });
        connection.end(true);
      },
    });
    const closed = new Promise<void>((resolve) => duplex.once("close", resolve));
    connection.end = () => duplex.destroy();
    connection.backlog = duplex;
    this.#http2.set(connection, duplex);
    this.#options.serveHttp2(duplex, connection);
    await closed;
  }
}
