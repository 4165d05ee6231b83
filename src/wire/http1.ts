// HTTP/1.1, as much as probes and scrapers need: one GET or HEAD per connection, then close.
// Must not import gRPC or know what is asked for. node:http costs ten times as much per probe.
import type { Clock } from "../clock.ts";
import type { Transport } from "./transport.ts";

/** One request, as the handler sees it; the body, if there is one, is not looked at. */
export interface HttpRequest {
  /** `GET` or `HEAD`; others are answered before they get here. */
  readonly method: string;
  /** Path without query. */
  readonly path: string;
  /** The `authorization` header. */
  readonly authorization: string | undefined;
}

/** One answer. */
export interface HttpAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
  /** Further headers. */
  readonly headers?: Readonly<Record<string, string>>;
}

const REASONS: Readonly<Record<number, string>> = {
  200: "OK",
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  503: "Service Unavailable",
};

const MAX_HEAD_BYTES = 16 * 1024;
/** Milliseconds and bytes for which the client's rest is read, so that the close does not reset. */
const LINGER_MS = 1_000;
const MAX_LINGER_BYTES = 1024 * 1024;

const encoder = new TextEncoder();
const latin1 = new TextDecoder("latin1");

/** A short text answer. */
export function textAnswer(status: number, body: string): HttpAnswer {
  return { status, contentType: "text/plain; charset=utf-8", body };
}

/**
 * The request in `head` (request line and header lines, up to and without the empty line), or the answer
 * to one that is none.
 */
export function parseRequest(head: string): HttpRequest | HttpAnswer {
  const [requestLine = "", ...lines] = head.split("\r\n");
  const match = /^([A-Z]+) (\S+) HTTP\/1\.[01]$/.exec(requestLine);
  if (match === null) return textAnswer(400, "bad request\n");
  const [, method = "", target = ""] = match;
  if (method !== "GET" && method !== "HEAD") {
    return { ...textAnswer(405, "method not allowed\n"), headers: { Allow: "GET, HEAD" } };
  }
  let authorization: string | undefined;
  for (const line of lines) {
    const colon = line.indexOf(":");
    // A folded line or a name with a blank could be read differently by a proxy in front.
    if (!/^[^\s:]+:/.test(line)) return textAnswer(400, "bad request\n");
    if (line.slice(0, colon).toLowerCase() === "authorization") {
      if (authorization !== undefined) return textAnswer(400, "bad request\n");
      authorization = line.slice(colon + 1).trim();
    }
  }
  return { method, path: pathOf(target), authorization };
}

/** Path of a request target in origin or absolute form, without query. */
export function pathOf(target: string): string {
  return target.replace(/^https?:\/\/[^/?#]*/i, "").replace(/[?#].*$/s, "") || "/";
}

/** The bytes of `answer`. */
export function formatAnswer(answer: HttpAnswer, withBody: boolean, date: Date): Uint8Array {
  const body = encoder.encode(answer.body);
  const lines = [
    `HTTP/1.1 ${answer.status} ${REASONS[answer.status] ?? ""}`,
    `Date: ${date.toUTCString()}`,
    `Content-Type: ${answer.contentType}`,
    `Content-Length: ${body.length}`,
    ...Object.entries(answer.headers ?? {}).map(([name, value]) => `${name}: ${value}`),
    "Connection: close",
  ];
  const head = encoder.encode(lines.join("\r\n") + "\r\n\r\n");
  if (!withBody) return head;
  const bytes = new Uint8Array(head.length + body.length);
  bytes.set(head);
  bytes.set(body, head.length);
  return bytes;
}

/**
 * Reads one request from `transport` (`first` was read already), answers it and ends. The caller closes
 * the transport, also when the client takes too long.
 */
export async function serveHttp1(
  transport: Transport,
  first: Uint8Array,
  handle: (request: HttpRequest) => HttpAnswer | Promise<HttpAnswer>,
  clock: Clock,
): Promise<void> {
  const head = await readHead(transport, first);
  if (head === null) return;
  const parsed = head === undefined
    ? textAnswer(431, "request header fields too large\n")
    : parseRequest(head);
  const answer = "status" in parsed ? parsed : await handle(parsed);
  const withBody = "status" in parsed || parsed.method !== "HEAD";
  await transport.write(formatAnswer(answer, withBody, clock.wallTime()));
  await transport.closeWrite();
  await linger(transport, clock);
}

/** The head; undefined where it is too long; null where the client left before its end. */
async function readHead(
  transport: Transport,
  first: Uint8Array,
): Promise<string | undefined | null> {
  let text = latin1.decode(first);
  for (;;) {
    const end = text.indexOf("\r\n\r\n");
    if (end >= 0) return text.slice(0, end);
    if (text.length > MAX_HEAD_BYTES) return undefined;
    const bytes = await transport.read();
    if (bytes === null) return null;
    text += latin1.decode(bytes);
  }
}

/** Closing with unread bytes resets the connection, which can overtake the answer. */
async function linger(transport: Transport, clock: Clock): Promise<void> {
  const timer = clock.setTimer(LINGER_MS, () => transport.close());
  try {
    for (let seen = 0; seen < MAX_LINGER_BYTES;) {
      const bytes = await transport.read();
      if (bytes === null) return;
      seen += bytes.length;
    }
  } catch {
    // The client has what it came for.
  } finally {
    timer.cancel();
  }
}
