// The one table from the agent's error kinds to gRPC status codes, and back for the client.
// Shared by server and client.
import { status } from "@grpc/grpc-js";
import type { ErrorKind } from "../errors.ts";

/** gRPC status code of each error kind (https://grpc.io/docs/guides/status-codes/). */
export const KIND_TO_STATUS: Readonly<Record<ErrorKind, status>> = {
  "invalid-argument": status.INVALID_ARGUMENT,
  "not-found": status.NOT_FOUND,
  "permission-denied": status.PERMISSION_DENIED,
  "failed-precondition": status.FAILED_PRECONDITION,
  "resource-exhausted": status.RESOURCE_EXHAUSTED,
  "out-of-range": status.OUT_OF_RANGE,
  "unauthenticated": status.UNAUTHENTICATED,
  "unavailable": status.UNAVAILABLE,
  "deadline-exceeded": status.DEADLINE_EXCEEDED,
  "cancelled": status.CANCELLED,
  "unimplemented": status.UNIMPLEMENTED,
  "internal": status.INTERNAL,
};

const STATUS_TO_KIND = new Map<number, ErrorKind>(
  (Object.entries(KIND_TO_STATUS) as [ErrorKind, status][]).map(([kind, code]) => [code, kind]),
);

/** The kind of a gRPC status code; codes that the agent never sends are `internal`. */
export function kindOfStatus(code: number): ErrorKind {
  return STATUS_TO_KIND.get(code) ?? "internal";
}
