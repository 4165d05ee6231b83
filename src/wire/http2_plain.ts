// A plain GET or HEAD over HTTP/2, as some proxies send their probes: answered like one over HTTP/1.1.
// Server only; must not import grpc-js or know what is asked for.
import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { type HttpAnswer, type HttpRequest, pathOf, textAnswer } from "./http1.ts";

/** Answers the request on `stream` by `handle`. Never rejects: a client that is gone needs no answer. */
export async function answerPlain(
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  handle: (request: HttpRequest) => HttpAnswer | Promise<HttpAnswer>,
  version: string,
): Promise<void> {
  const method = String(headers[":method"]);
  try {
    const answer = method === "GET" || method === "HEAD"
      ? await handle({
        method,
        path: pathOf(String(headers[":path"])),
        authorization: headers.authorization,
      })
      : textAnswer(405, "method not allowed\n");
    if (stream.destroyed) return;
    const endStream = method === "HEAD";
    stream.respond({
      ":status": answer.status,
      "content-type": answer.contentType,
      "ateenv-version": version,
    }, { endStream });
    if (!endStream) stream.end(answer.body);
  } catch {
    stream.destroy();
  }
}
