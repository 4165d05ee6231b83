// The `grpc-timeout` header, as the gRPC protocol over HTTP/2 spells it.
// Pure; must not import gRPC or HTTP/2.
import { AgentError } from "../errors.ts";

const TIMEOUT_UNIT_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1_000,
  m: 1,
  u: 0.001,
  n: 0.000_001,
};

/**
 * Milliseconds of a `grpc-timeout` header, undefined where there is none.
 * @throws {AgentError} internal, where it is malformed: the code that other servers give
 */
export function parseTimeout(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const match = /^(\d{1,8})\s*([HMSmun])$/.exec(header);
  if (match === null) throw new AgentError("internal", "malformed grpc-timeout");
  return Number(match[1]) * TIMEOUT_UNIT_MS[match[2]!]!;
}
