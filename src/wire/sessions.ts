// HTTP/2 sessions and the connections that they came by: which is whose, and how a peer is sent away.
// Server only; must not import grpc-js or a service.
import { constants, type ServerHttp2Session } from "node:http2";
import type { Clock } from "../clock.ts";
import type { ConnectionDuplex } from "./connection_duplex.ts";
import type { Connection } from "./connections.ts";

/** Options of {@linkcode Sessions}. */
export interface SessionsOptions {
  readonly clock: Clock;
  /** Bytes that a peer may send ahead, on the whole connection. */
  readonly windowBytes: number;
  /** Makes a session of a connection, synchronously: {@linkcode Sessions.opened} is called meanwhile. */
  inject(duplex: ConnectionDuplex): void;
}

/** Milliseconds for the GOAWAY to a client that is sent away. */
const GOAWAY_MS = 100;

/** See the head of this file. */
export class Sessions {
  readonly #options: SessionsOptions;
  readonly #connections = new Map<ServerHttp2Session, Connection>();
  #entering: { readonly connection: Connection; readonly duplex: ConnectionDuplex } | undefined;
  #closing = false;

  constructor(options: SessionsOptions) {
    this.#options = options;
  }

  /** The connection that `session` came by; undefined once it is closed. */
  connectionOf(session: ServerHttp2Session): Connection | undefined {
    return this.#connections.get(session);
  }

  /** Makes a session of a connection that speaks HTTP/2. */
  serve(duplex: ConnectionDuplex, connection: Connection): void {
    // Everything in here is synchronous, so this is the connection of the session that opens.
    this.#entering = { connection, duplex };
    try {
      this.#options.inject(duplex);
    } finally {
      this.#entering = undefined;
    }
  }

  /** To be called first of all with every session that opens. */
  opened(session: ServerHttp2Session): void {
    if (this.#entering === undefined) {
      session.destroy();
      return;
    }
    const { connection, duplex } = this.#entering;
    this.#connections.set(session, connection);
    session.on("error", () => {});
    session.once("close", () => {
      this.#connections.delete(session);
      duplex.destroy();
    });
    connection.end = (hostile) => {
      if (session.destroyed) {
        duplex.destroy();
        return;
      }
      session.destroy(
        undefined,
        hostile ? constants.NGHTTP2_ENHANCE_YOUR_CALM : constants.NGHTTP2_NO_ERROR,
      );
      // A peer that does not read its GOAWAY must not keep the connection.
      const timer = this.#options.clock.setTimer(GOAWAY_MS, () => duplex.destroy());
      duplex.once("close", () => timer.cancel());
    };
    connection.retire = () => session.close();
    session.setLocalWindowSize(this.#options.windowBytes);
    if (this.#closing) session.close();
  }

  /** GOAWAY to every peer, also to those to come: running calls go on, and then the connection ends. */
  close(): void {
    this.#closing = true;
    for (const session of this.#connections.keys()) session.close();
  }
}
