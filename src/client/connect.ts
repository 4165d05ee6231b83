// From an address and options to a client.
// Reads the files that the options name; must not make calls but the one that shows who is there.
import { Buffer } from "node:buffer";
import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import process from "node:process";
import { checkServerIdentity } from "node:tls";
import { create } from "@bufbuild/protobuf";
import { type ChannelCredentials, credentials } from "@grpc/grpc-js";
import { HealthCheckRequestSchema } from "../../gen/grpc/health/v1/health_pb.ts";
import { healthServiceDefinition } from "../wire/definitions.ts";
import { type Address, parseAddress } from "./address.ts";
import { Channel } from "./channel.ts";
import { AteenvClient } from "./client.ts";
import { AteenvError, throwIfAborted } from "./error.ts";
import type { AbortOptions } from "./process.ts";
import type { TlsFiles } from "./readyz.ts";
import { DEFAULT_RETRY, type RetryPolicy } from "./retry.ts";

/** TLS, with PEM texts. `{}` means TLS with the system's certificate authorities. */
export type TlsOptions = TlsFiles;

/** How to connect. */
export interface ConnectOptions extends AbortOptions {
  /** The agent's bearer token. */
  readonly token?: string;
  /** A file with the token; white space around it is cut off. */
  readonly tokenFile?: string;
  /** Given for TLS where the address is not `https://`, for an own authority, or for a client certificate. */
  readonly tls?: TlsOptions;
  /** How long to wait for the agent's first answer, in milliseconds. Default 5,000. */
  readonly connectTimeoutMs?: number;
  /** How to bridge lost connections, once connected. */
  readonly retry?: Partial<RetryPolicy>;
  /** A connection with calls that is silent this long is asked whether it lives. Default 20,000 ms. */
  readonly keepaliveMs?: number;
  /** How long the answer to that may take before the connection counts as dead. Default 10,000 ms. */
  readonly keepaliveTimeoutMs?: number;
}

const DEFAULT_CONNECT_TIMEOUT_MS = 5_000;
const DEFAULT_KEEPALIVE_MS = 20_000;
const DEFAULT_KEEPALIVE_TIMEOUT_MS = 10_000;

/** Where an agent listens unless it is told otherwise. */
export const DEFAULT_ADDRESS = "127.0.0.1:8080";

/**
 * Connects to an agent: `host:port`, `http://host:port`, `https://host:port` or `unix:/path`; without an
 * address to that of the variable ATEENV_ADDRESS, or to 127.0.0.1:8080. Fails at once where nobody
 * listens; afterwards lost connections are bridged.
 *
 * ```ts
 * import { connect } from "@ateenv/ateenvd";
 *
 * await using client = await connect();
 * const { stdout, exitCode } = await client.shell("uname -s");
 * console.log(exitCode, stdout);
 * ```
 *
 * @throws {AteenvError} `unavailable` if no agent answers, `unauthenticated`, `invalid-argument` for
 * an address or options that cannot be meant.
 */
export async function connect(
  address: string = defaultAddress(),
  options: ConnectOptions = {},
): Promise<AteenvClient> {
  const { signal, connectTimeoutMs = DEFAULT_CONNECT_TIMEOUT_MS } = options;
  throwIfAborted(signal);
  const parsed = parseAddress(address, options.tls !== undefined);
  const channel = new Channel({
    target: parsed.target,
    display: parsed.display,
    ...toCredentials(parsed, options.tls),
    token: await readToken(options),
    keepaliveMs: options.keepaliveMs ?? DEFAULT_KEEPALIVE_MS,
    keepaliveTimeoutMs: options.keepaliveTimeoutMs ?? DEFAULT_KEEPALIVE_TIMEOUT_MS,
  });
  try {
    await greet(channel, connectTimeoutMs, signal);
  } catch (error) {
    await channel.close();
    throw error;
  }
  return new AteenvClient(channel, parsed, options.tls ?? {}, {
    ...DEFAULT_RETRY,
    ...options.retry,
  });
}

function defaultAddress(): string {
  try {
    return process.env.ATEENV_ADDRESS || DEFAULT_ADDRESS;
  } catch {
    // Deno, without the permission: as if it were not set.
    return DEFAULT_ADDRESS;
  }
}

/** Any answer shows that an agent is there: it may be draining, or have no health service. */
async function greet(
  channel: Channel,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  try {
    await channel.unary(healthServiceDefinition.check, create(HealthCheckRequestSchema), {
      timeoutMs,
      signal,
    });
  } catch (error) {
    if (!(error instanceof AteenvError) || signal?.aborted) throw error;
    if (error.kind === "unimplemented" || error.kind === "not-found") return;
    if (error.kind !== "deadline-exceeded") throw error;
    throw new AteenvError(
      "unavailable",
      `cannot reach the agent at ${channel.display}: no answer within ${timeoutMs} ms`,
      { cause: error },
    );
  }
}

/**
 * TLS names the server it wants (SNI), and an IP address is no such name: grpc-js sends it all the same, and
 * Deno refuses that. A name that is never used is sent instead; the certificate is checked against the IP.
 */
const NAME_SENT_FOR_IP = "ip.invalid";

function toCredentials(
  address: Address,
  tls: TlsOptions | undefined,
): { credentials: ChannelCredentials; serverName?: string } {
  if (!address.tls) return { credentials: credentials.createInsecure() };
  // grpc-js takes Buffers only.
  const pem = (value: string | Uint8Array | undefined) =>
    value === undefined ? null : Buffer.from(value as Uint8Array);
  const host = "host" in address.http ? address.http.host : "";
  const ip = isIP(host) === 0 ? undefined : host;
  const verify = ip === undefined ? {} : {
    checkServerIdentity: (_: string, certificate: unknown) =>
      checkServerIdentity(ip, certificate as Parameters<typeof checkServerIdentity>[1]),
  };
  try {
    return {
      credentials: credentials.createSsl(pem(tls?.ca), pem(tls?.key), pem(tls?.cert), verify),
      ...(ip === undefined ? {} : { serverName: NAME_SENT_FOR_IP }),
    };
  } catch (error) {
    throw new AteenvError("invalid-argument", `cannot use the TLS options: ${error}`, {
      cause: error,
    });
  }
}

async function readToken(options: ConnectOptions): Promise<string | undefined> {
  if (options.tokenFile === undefined) return options.token;
  if (options.token !== undefined) {
    throw new AteenvError("invalid-argument", "give either token or tokenFile");
  }
  try {
    return (await readFile(options.tokenFile, "utf8")).trim();
  } catch (error) {
    throw new AteenvError(
      "invalid-argument",
      `cannot read the token file ${JSON.stringify(options.tokenFile)}: ${
        error instanceof Error ? error.message : error
      }`,
      { cause: error },
    );
  }
}
