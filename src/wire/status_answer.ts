// An error of a handler -> the status and trailers that the client gets.
// Server only; must not import a service.
import { Metadata, type ServerErrorResponse, status } from "@grpc/grpc-js";
import { AgentError } from "../errors.ts";
import { errorFields, type Logger } from "../log.ts";
import { KIND_TO_STATUS } from "./status.ts";

/** Where an answer comes from, for the log line of an error that nobody foresaw. */
interface Origin {
  readonly method: string;
  readonly log: Logger;
  /** The error itself where it was the client that broke the call: nothing to write down. */
  readonly abortReason: AgentError | undefined;
}

/**
 * The status of `error`. An AgentError is shown to the client, its details as trailers; anything else is a
 * mistake of ours: INTERNAL, one log line, and not a word of it to the client.
 */
export function statusOf(error: unknown, origin: Origin): ServerErrorResponse {
  if (!(error instanceof AgentError)) {
    origin.log.error("handler failed", { method: origin.method, ...errorFields(error) });
    return answer(status.INTERNAL, "internal error");
  }
  if (error.kind === "internal" && error !== origin.abortReason) {
    origin.log.error("call failed", { method: origin.method, ...errorFields(error) });
  }
  const trailers = new Metadata();
  for (const [name, value] of Object.entries(error.details)) trailers.set(name, value);
  return answer(KIND_TO_STATUS[error.kind], error.message, trailers);
}

function answer(code: status, message: string, metadata = new Metadata()): ServerErrorResponse {
  // grpc-js percent-encodes the message with encodeURI, which throws at half a surrogate pair.
  const details = message.toWellFormed();
  return { name: "Error", message: details, code, details, metadata };
}
