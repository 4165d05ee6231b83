// The error table of file calls: errno -> kind, with the request's path in the message.
// Must not import anything but errors.ts.
import { AgentError, type ErrorKind, osErrorCode } from "../errors.ts";

/** What the contract says; anything that is not listed is `internal`, with the errno's name. */
const CODE_TO_KIND: Readonly<Record<string, ErrorKind>> = {
  ENOENT: "not-found",
  EACCES: "permission-denied",
  EPERM: "permission-denied",
  NotCapable: "permission-denied",
  EISDIR: "failed-precondition",
  ENOTDIR: "failed-precondition",
  ELOOP: "failed-precondition",
  EROFS: "failed-precondition",
  ENXIO: "failed-precondition",
  EBUSY: "failed-precondition",
  ENOSPC: "resource-exhausted",
  EDQUOT: "resource-exhausted",
  EMFILE: "resource-exhausted",
  ENFILE: "resource-exhausted",
  ENOMEM: "resource-exhausted",
  ENAMETOOLONG: "invalid-argument",
};

const CODE_TO_REASON: Readonly<Record<string, string>> = {
  EACCES: "permission denied",
  EPERM: "operation not permitted",
  NotCapable: "not permitted by the agent's policy (Deno permission scopes)",
  EISDIR: "it is a directory",
  ENOTDIR: "a component of the path is not a directory",
  ELOOP: "too many levels of symbolic links",
  EROFS: "read-only file system",
  EBUSY: "it is busy: a mount point (such as a bind-mounted single file) cannot be replaced",
  ENOSPC: "no space left on device",
  EDQUOT: "disk quota exceeded",
  EMFILE: "too many open files",
  ENFILE: "too many open files in the system",
  ENOMEM: "out of memory",
  ENAMETOOLONG: "the path is too long",
};

/** What a call was doing, for its message. */
export type FileVerb = "read" | "write";

/** The {@linkcode AgentError} of a failed file call; an AgentError passes through. */
export function fileError(error: unknown, verb: FileVerb, path: string): AgentError {
  if (error instanceof AgentError) return error;
  const code = osErrorCode(error);
  if (code === "ENOENT") return fileNotFound(path, error);
  const kind = code === undefined ? "internal" : CODE_TO_KIND[code] ?? "internal";
  const reason = code === undefined
    ? "unexpected error"
    : code === "NotCapable"
    ? CODE_TO_REASON[code]
    : code in CODE_TO_REASON
    ? `${CODE_TO_REASON[code]} (${code})`
    : code;
  return new AgentError(kind, `cannot ${verb} file "${path}": ${reason}`, { cause: error });
}

/** The error of a file that is not there. */
export function fileNotFound(path: string, cause?: unknown): AgentError {
  return new AgentError("not-found", `file "${path}" not found`, { cause });
}

/** A refusal that comes from what the path names, before the kernel is asked: FAILED_PRECONDITION. */
export function refused(verb: FileVerb, path: string, reason: string): AgentError {
  return new AgentError("failed-precondition", `cannot ${verb} file "${path}": ${reason}`);
}

/** What stands in the way of treating something as a file, for a message. */
export function describeKind(info: Deno.FileInfo): string {
  if (info.isDirectory) return "it is a directory";
  if (info.isFifo) return "it is a FIFO, not a regular file";
  if (info.isSocket) return "it is a socket, not a regular file";
  return "it is a device, not a regular file";
}
