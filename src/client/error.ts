// The one error class of the client library, and how a gRPC status becomes one.
// Must not import anything of the agent but its list of error kinds.
import { type ServiceError, status } from "@grpc/grpc-js";
import type { ErrorKind } from "../errors.ts";
import { kindOfStatus } from "../wire/status.ts";

/**
 * What went wrong, as a program may act on it. The agent's own kinds, and what only a client can see:
 *
 * - `outcome-unknown`: the request was sent and the connection was lost before the answer. It may
 *   have taken effect; it was not repeated.
 * - `interrupted`: a download was cut and cannot be continued exactly, because the file changed.
 * - `source-failed`: the source of an upload threw; that error is the `cause`.
 * - `closed`: the client was closed.
 *
 * `cancelled` is an aborted signal (its reason is the `cause`), `deadline-exceeded` one of
 * `AbortSignal.timeout()`, and `unavailable` an agent that could not be reached within the bound.
 */
export type AteenvErrorKind =
  | ErrorKind
  | "outcome-unknown"
  | "interrupted"
  | "source-failed"
  | "closed";

/** Options of {@linkcode AteenvError}. */
export interface AteenvErrorOptions {
  /** The error underneath. */
  readonly cause?: unknown;
  /** Machine-readable facts that the agent sent along. */
  readonly details?: Readonly<Record<string, string | number>>;
}

/**
 * Every error of the client library.
 *
 * ```ts
 * import { AteenvError } from "@ateenv/ateenvd";
 *
 * const error = new AteenvError("not-found", 'file "a.txt" not found');
 * if (error.kind !== "not-found") throw error;
 * ```
 */
export class AteenvError extends Error {
  /** Always `AteenvError`. */
  override readonly name = "AteenvError";
  /** Stable; decide on this, never on the message. */
  readonly kind: AteenvErrorKind;
  /**
   * Facts sent by the agent. An `out-of-range` of process output has `firstStdoutOffset` and
   * `firstStderrOffset`, the first bytes that are still kept.
   */
  readonly details: Readonly<Record<string, string | number>>;

  /** Also for programs that stand in for a client, in their tests. */
  constructor(kind: AteenvErrorKind, message: string, options: AteenvErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : {});
    this.kind = kind;
    this.details = options.details ?? {};
  }
}

/** Metadata key under which every answer of an agent carries its version. */
export const VERSION_KEY = "ateenv-version";

const DETAIL_PREFIX = "ateenv-";

/** `ateenv-first-stdout-offset: 12` -> `firstStdoutOffset: 12` */
function toDetails(metadata: ServiceError["metadata"]): Record<string, string | number> {
  const details: Record<string, string | number> = {};
  for (const [key, value] of Object.entries(metadata?.getMap() ?? {})) {
    if (!key.startsWith(DETAIL_PREFIX) || key === VERSION_KEY) continue;
    const name = key.slice(DETAIL_PREFIX.length).replace(
      /-([a-z])/g,
      (_, letter: string) => letter.toUpperCase(),
    );
    const text = String(value);
    details[name] = /^\d{1,15}$/.test(text) ? Number(text) : text;
  }
  return details;
}

/** Whether the status was made by an agent, not by the transport or by something in between. */
export function isFromAgent(error: AteenvError): boolean {
  const metadata = (error.cause as Partial<ServiceError> | undefined)?.metadata;
  return metadata !== undefined && metadata.get(VERSION_KEY).length > 0;
}

/** The error of an aborted signal. */
export function abortError(signal: AbortSignal): AteenvError {
  const reason: unknown = signal.reason;
  if (reason instanceof AteenvError) return reason;
  const timedOut = reason instanceof DOMException && reason.name === "TimeoutError";
  return timedOut
    ? new AteenvError("deadline-exceeded", "the call timed out", { cause: reason })
    : new AteenvError("cancelled", "the call was aborted", { cause: reason });
}

/** @throws {AteenvError} `cancelled` or `deadline-exceeded` where the signal is aborted. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortError(signal);
}

/** The error of a failed call to the agent at `address`. */
export function fromServiceError(error: unknown, address: string): AteenvError {
  if (error instanceof AteenvError) return error;
  const { code, details, metadata } = error as Partial<ServiceError>;
  if (typeof code !== "number") {
    return new AteenvError("internal", `unexpected error: ${String(error)}`, { cause: error });
  }
  const message = details ?? "";
  switch (code) {
    case status.UNAVAILABLE:
      return new AteenvError(
        "unavailable",
        metadata?.get(VERSION_KEY).length
          ? `the agent at ${address} refuses work: ${message}`
          : `cannot reach the agent at ${address}: ${tidy(message)}`,
        { cause: error },
      );
    case status.CANCELLED:
      // Not by us: an aborted signal is told apart before. Routers cut long streams like this.
      return new AteenvError("unavailable", `the call to ${address} was cut: ${message}`, {
        cause: error,
      });
    default:
      return new AteenvError(kindOfStatus(code), message, {
        cause: error,
        details: metadata === undefined ? {} : toDetails(metadata),
      });
  }
}

/** grpc-js tells every attempt, with its time and each address of it; the last cause is enough. */
function tidy(message: string): string {
  const last = /Last error: (?:Error: )?(.*?)\.?\s*(?:Resolution note: .*)?$/s.exec(message)?.[1];
  return (last ?? message).replace(/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)$/, "");
}
