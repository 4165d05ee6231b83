// GET /readyz: is the agent there and taking work? Needs no token, and no gRPC on the way.
// Must not retry: whoever probes wants to know about now.
import { request as httpRequest } from "node:http";
import { isIP } from "node:net";
import { connect as tlsConnect } from "node:tls";
import type { Address } from "./address.ts";
import { abortError, AteenvError, throwIfAborted } from "./error.ts";

/** PEM texts. */
export interface TlsFiles {
  readonly ca?: string | Uint8Array | undefined;
  readonly cert?: string | Uint8Array | undefined;
  readonly key?: string | Uint8Array | undefined;
}

/** What an agent says of itself. */
export interface Health {
  /** Whether it takes new work. */
  readonly ready: boolean;
  /** `ok`, or why not. */
  readonly message: string;
  /** The agent's wall clock, to the second. */
  readonly agentTime: Date | undefined;
}

/**
 * Asks the agent whether it is ready.
 *
 * @throws {AteenvError} `unavailable` if nobody answers.
 */
export function readHealth(
  address: Address,
  tls: TlsFiles,
  signal: AbortSignal | undefined,
): Promise<Health> {
  return new Promise((resolve, reject) => {
    throwIfAborted(signal);
    const options = {
      path: "/readyz",
      headers: { connection: "close" },
      ...address.http,
      // Not node:https: in Deno it asks for the permission to read the system's authorities, if none is given.
      // Only where no agent is named, not even `false`, is createConnection used.
      ...(address.tls
        ? { createConnection: () => openTls(address, tls) }
        : { agent: false as const }),
    };
    const fail = (error: Error) => {
      signal?.removeEventListener("abort", onAbort);
      reject(
        signal?.aborted ? abortError(signal) : new AteenvError(
          "unavailable",
          `cannot reach the agent at ${address.display}: ${error.message || errorCode(error)}`,
          { cause: error },
        ),
      );
    };
    const request = httpRequest(options, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (text: string) => body += text.slice(0, 1_000 - body.length));
      response.on("error", fail);
      response.on("end", () => {
        signal?.removeEventListener("abort", onAbort);
        const date = new Date(response.headers.date ?? NaN);
        resolve({
          ready: response.statusCode === 200,
          message: body.trim() || `HTTP status ${response.statusCode}`,
          agentTime: Number.isNaN(date.getTime()) ? undefined : date,
        });
      });
    });
    const onAbort = () => request.destroy();
    signal?.addEventListener("abort", onAbort, { once: true });
    request.on("error", fail);
    request.end();
  });
}

function errorCode(error: Error): string {
  return (error as { code?: string }).code ?? error.name;
}

function openTls({ http }: Address, tls: TlsFiles) {
  return "socketPath" in http
    ? tlsConnect({ path: http.socketPath, ...toNodeTls(tls) })
    : tlsConnect({
      ...http,
      // An IP address is no name to ask for.
      ...(isIP(http.host) === 0 ? { servername: http.host } : {}),
      ...toNodeTls(tls),
    });
}

function toNodeTls(tls: TlsFiles) {
  const pem = (value: string | Uint8Array | undefined) =>
    value === undefined ? undefined : Buffer.from(value as Uint8Array);
  return Object.fromEntries(
    Object.entries({ ca: pem(tls.ca), cert: pem(tls.cert), key: pem(tls.key) })
      .filter(([, value]) => value !== undefined),
  );
}
