// The one error vocabulary of the agent: a closed list of kinds, and the mapping from OS errors.
// A leaf: imports nothing of ours and knows nothing of gRPC.

/**
 * What went wrong, as the caller may act on it. The list is closed: `wire/status.ts` maps each kind
 * to exactly one gRPC status code.
 */
export type ErrorKind =
  | "invalid-argument"
  | "not-found"
  | "permission-denied"
  | "failed-precondition"
  | "resource-exhausted"
  | "out-of-range"
  | "unauthenticated"
  | "unavailable"
  | "deadline-exceeded"
  | "cancelled"
  | "unimplemented"
  | "internal";

/** Options of {@linkcode AgentError}. */
export interface AgentErrorOptions {
  /** The error underneath, kept for the log. */
  readonly cause?: unknown;
  /** Machine-readable facts, sent as trailers: ASCII names in lower case, ASCII values. */
  readonly details?: Readonly<Record<string, string>>;
}

/** Every error that leaves a room of the agent. The message is shown to the caller as it is. */
export class AgentError extends Error {
  override readonly name = "AgentError";
  readonly kind: ErrorKind;
  readonly details: Readonly<Record<string, string>>;

  constructor(kind: ErrorKind, message: string, options: AgentErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : {});
    this.kind = kind;
    this.details = options.details ?? {};
  }
}

const CODE_TO_KIND: Readonly<Record<string, ErrorKind>> = {
  ENOENT: "not-found",
  EACCES: "permission-denied",
  EPERM: "permission-denied",
  EISDIR: "failed-precondition",
  ENOTDIR: "failed-precondition",
  ELOOP: "failed-precondition",
  ENXIO: "failed-precondition",
  EROFS: "failed-precondition",
  EBUSY: "failed-precondition",
  ENOTEMPTY: "failed-precondition",
  ETXTBSY: "failed-precondition",
  ENOSPC: "resource-exhausted",
  EDQUOT: "resource-exhausted",
  EMFILE: "resource-exhausted",
  ENFILE: "resource-exhausted",
  EAGAIN: "resource-exhausted",
  ENOMEM: "resource-exhausted",
  ENAMETOOLONG: "invalid-argument",
  E2BIG: "invalid-argument",
  EINVAL: "invalid-argument",
};

/** Linux errno numbers (asm-generic/errno*.h) for errors that carry only `(os error N)`. */
const ERRNO_NAMES: Readonly<Record<string, string>> = {
  "1": "EPERM",
  "2": "ENOENT",
  "4": "EINTR",
  "5": "EIO",
  "6": "ENXIO",
  "7": "E2BIG",
  "8": "ENOEXEC",
  "11": "EAGAIN",
  "12": "ENOMEM",
  "13": "EACCES",
  "16": "EBUSY",
  "17": "EEXIST",
  "18": "EXDEV",
  "20": "ENOTDIR",
  "21": "EISDIR",
  "22": "EINVAL",
  "23": "ENFILE",
  "24": "EMFILE",
  "26": "ETXTBSY",
  "27": "EFBIG",
  "28": "ENOSPC",
  "30": "EROFS",
  "32": "EPIPE",
  "36": "ENAMETOOLONG",
  "39": "ENOTEMPTY",
  "40": "ELOOP",
  "116": "ESTALE",
  "122": "EDQUOT",
};

/**
 * The errno name of an OS error ("ENOENT"), `"NotCapable"` for a refusal by Deno's permissions, or
 * undefined for anything else. Decides on `code` and class; the `(os error N)` suffix, which Deno
 * appends to what it has no class for, is the last resort.
 */
export function osErrorCode(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if (error instanceof Deno.errors.NotCapable) return "NotCapable";
  const code = (error as { code?: unknown }).code;
  if (typeof code === "string" && /^E[A-Z0-9]+$/.test(code)) return code;
  const errno = /\(os error (\d+)\)/.exec(error.message)?.[1];
  if (errno !== undefined) return ERRNO_NAMES[errno] ?? `errno ${errno}`;
  if (error instanceof Deno.errors.NotFound) return "ENOENT";
  if (error instanceof Deno.errors.PermissionDenied) return "EACCES";
  if (error instanceof Deno.errors.FilesystemLoop) return "ELOOP";
  if (error instanceof Deno.errors.IsADirectory) return "EISDIR";
  if (error instanceof Deno.errors.NotADirectory) return "ENOTDIR";
  return undefined;
}

/**
 * An {@linkcode AgentError} for an error of the OS or of Deno's permission check, with `what` ("cannot
 * open \"a.txt\"") in front. An AgentError passes through; what is unknown becomes `internal` and
 * carries the errno's name where there is one.
 */
export function fromOsError(error: unknown, what: string): AgentError {
  if (error instanceof AgentError) return error;
  const code = osErrorCode(error);
  if (code === "NotCapable") {
    return new AgentError(
      "permission-denied",
      `${what}: not permitted by the agent's policy (Deno permission scopes)`,
      { cause: error },
    );
  }
  if (code !== undefined) {
    return new AgentError(CODE_TO_KIND[code] ?? "internal", `${what}: ${code}`, { cause: error });
  }
  return new AgentError("internal", `${what}: unexpected error`, { cause: error });
}

/** The error that an aborted call's work ends with. Nobody is left to read it. */
export function cancelledError(): AgentError {
  return new AgentError("cancelled", "the call was cancelled");
}
