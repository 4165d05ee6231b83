// What the port allows its clients, and how grpc-js and HTTP/2 are told.
// Must not import a service.
import type { ChannelOptions } from "@grpc/grpc-js";
import type { ServerOptions as Http2Options } from "node:http2";

/** What protects the port; every one has a default, see {@linkcode DEFAULT_LIMITS}. */
export interface ServerLimits {
  /** Largest message taken, in bytes. */
  readonly maxMessageBytes: number;
  readonly maxConnections: number;
  readonly maxStreamsPerConnection: number;
  /** Milliseconds for the handshake and the first bytes of a connection. */
  readonly openingTimeoutMs: number;
  /** Milliseconds for a request to arrive; of an upload, its headers. */
  readonly requestTimeoutMs: number;
  /** Milliseconds after which a connection without calls is closed. */
  readonly idleTimeoutMs: number;
  /** Milliseconds between keepalive pings, and for each answer. */
  readonly keepaliveMs: number;
  readonly keepaliveTimeoutMs: number;
}

/** Half-open connections end within keepaliveMs + keepaliveTimeoutMs: less than a minute. */
export const DEFAULT_LIMITS: ServerLimits = {
  maxMessageBytes: 16 * 1024 * 1024,
  maxConnections: 256,
  maxStreamsPerConnection: 1024,
  openingTimeoutMs: 5_000,
  requestTimeoutMs: 30_000,
  idleTimeoutMs: 15 * 60_000,
  keepaliveMs: 20_000,
  keepaliveTimeoutMs: 20_000,
};

/**
 * Bytes that a client may send ahead of the handler, per call and per connection. On loopback 1 MiB is as
 * fast; 4 MiB is 200 MiB/s at 20 ms of round trip. 8 MiB cost 30 to 50 MiB of memory in an upload.
 */
export const FLOW_WINDOW_BYTES = 4 * 1024 * 1024;

/** Options of the grpc-js server. */
export function grpcOptions(limits: ServerLimits): ChannelOptions {
  return {
    "grpc.max_receive_message_length": limits.maxMessageBytes,
    "grpc.max_send_message_length": -1,
    "grpc.max_connection_idle_ms": limits.idleTimeoutMs,
    "grpc.keepalive_time_ms": limits.keepaliveMs,
    "grpc.keepalive_timeout_ms": limits.keepaliveTimeoutMs,
    // Channelz keeps a record of every connection for a service that we do not offer.
    "grpc.enable_channelz": 0,
  };
}

/** Options of the HTTP/2 server underneath, beyond those that grpc-js sets. */
export function http2Options(limits: ServerLimits): Http2Options {
  return {
    settings: {
      initialWindowSize: FLOW_WINDOW_BYTES,
      maxConcurrentStreams: limits.maxStreamsPerConnection,
    },
  };
}
