// Which agent is meant: an address as people write it -> what grpc-js and node:http need.
// Pure; must not open anything.
import { AteenvError } from "./error.ts";

/** Where an agent listens. */
export interface Address {
  /** For messages: as short as it can be without being ambiguous. */
  readonly display: string;
  /** grpc-js target. */
  readonly target: string;
  readonly tls: boolean;
  /** For plain HTTP requests. */
  readonly http: { readonly socketPath: string } | { readonly host: string; readonly port: number };
}

const DEFAULT_PORT = 8080;
const DEFAULT_TLS_PORT = 443;

/**
 * Takes `host:port`, `host`, `[::1]:port`, `http://host:port`, `https://host:port` and `unix:/path`.
 * The port is 8080 unless given (443 for https). `tls` says what an address without a scheme means.
 *
 * @throws {AteenvError} `invalid-argument` for anything else.
 */
export function parseAddress(text: string, tls = false): Address {
  if (text.startsWith("unix:")) {
    const path = text.slice("unix:".length).replace(/^\/\/(?=\/)/, "");
    if (!path.startsWith("/")) throw invalid(text, "a unix socket needs an absolute path");
    return { display: `unix:${path}`, target: `unix:${path}`, tls, http: { socketPath: path } };
  }
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text)?.[1]?.toLowerCase();
  if (scheme !== undefined && scheme !== "http" && scheme !== "https") {
    throw invalid(text, `the scheme "${scheme}" is not known`);
  }
  if (scheme === "http" && tls) throw invalid(text, "http:// and TLS options contradict");
  const useTls = tls || scheme === "https";
  const authority = scheme === undefined ? text : text.slice(scheme.length + 3).replace(/\/$/, "");
  const match = /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?$/.exec(authority);
  if (match === null) throw invalid(text, "");
  const host = match[1]!;
  const port = match[2] === undefined
    ? (scheme === "https" ? DEFAULT_TLS_PORT : DEFAULT_PORT)
    : Number(match[2]);
  if (port < 1 || port > 65535) throw invalid(text, "a port is 1 to 65535");
  return {
    display: `${host}:${port}`,
    target: `dns:${host}:${port}`,
    tls: useTls,
    http: { host: host.replace(/^\[|\]$/g, ""), port },
  };
}

function invalid(text: string, why: string): AteenvError {
  const usage = "host:port, http://host:port, https://host:port or unix:/path";
  return new AteenvError(
    "invalid-argument",
    `cannot use the address ${JSON.stringify(text)}: ${why === "" ? "" : `${why}; `}use ${usage}`,
  );
}
