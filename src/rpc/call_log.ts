// The log line of a finished call: who called what, how it ended, how much went over the wire.
// Must not import gRPC. Nothing of what was sent gets in.
import type { Logger } from "../log.ts";
import type { CallSummary } from "../wire/server_call.ts";
import { codeName } from "./metrics.ts";

/** Writes the line, at debug. */
export function logCall(log: Logger, call: CallSummary): void {
  if (!log.enabled("debug")) return;
  log.debug("call finished", {
    method: call.method,
    code: codeName(call.code),
    durationMs: Math.round(call.durationMs * 1000) / 1000,
    bytesIn: call.bytesIn,
    bytesOut: call.bytesOut,
    peer: call.peer,
    traceparent: call.traceparent,
  });
}
