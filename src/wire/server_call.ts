// One gRPC call as the server sees it, from its headers to the end of its HTTP/2 stream.
// Must not import grpc-js: it lives one layer below and sees only the stream.
import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { constants } from "node:http2";
import type { Clock, Timer } from "../clock.ts";
import { AgentError, cancelledError } from "../errors.ts";
import { errorFields, type Logger } from "../log.ts";
import type { Backlog } from "./connection_duplex.ts";
import { MessageFraming } from "./message_framing.ts";

/** How a call ended, for the log and the counters. */
export interface CallSummary {
  /** Path of the method, `/package.Service/Method`, as the client sent it. */
  readonly method: string;
  /** gRPC status code; CANCELLED (1) where the client went away before it was sent. */
  readonly code: number;
  readonly durationMs: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly peer: string;
  /** The `traceparent` header, if the client sent one. */
  readonly traceparent: string | undefined;
}

/** What is done when an answer could not be sent. */
export type Cleanup = () => void | Promise<unknown>;

/** What a call needs to know of its connection. */
export interface CallConnection {
  /** Address of the peer, for the log. */
  readonly peer: string;
  readonly backlog: Backlog;
}

/** What a call needs to know of its server. */
export interface CallEnvironment {
  readonly clock: Clock;
  readonly log: Logger;
  readonly version: string;
  /** Calls whose request (uploads: their first message) has not arrived; those that wait too long are aborted. */
  readonly awaitingRequest: { add(call: ServerCall): void; delete(call: ServerCall): void };
  /** Largest message taken, in bytes. */
  readonly maxMessageBytes: number;
  /** A handler is at work, until `work` settles; it never rejects. */
  working(work: Promise<void>): void;
  /** Called once, when the HTTP/2 stream is closed. */
  finished(summary: CallSummary): void;
}

/** For streams that are closed. */
const ignoreError = () => {};

/** Milliseconds between an answer and the reset of a stream whose client goes on as if there were none. */
export const RESET_AFTER_MS = 1_000;

const CANCELLED = 1;
const OK = 0;

/** See the head of this file. Made by the gate, finished by the stream. */
export class ServerCall {
  readonly method: string;
  readonly peer: string;
  /** What the connection of the call has to send. */
  readonly backlog: Backlog;
  readonly framing: MessageFraming;
  readonly #stream: ServerHttp2Stream;
  readonly #environment: CallEnvironment;
  readonly #traceparent: string | undefined;
  readonly #startedMs: number;
  /** What whoever answers the call does when it is aborted. */
  onAbort: (() => void) | undefined;
  /** Called once, when the HTTP/2 stream is closed. */
  onClosed: (() => void) | undefined;
  #abortReason: AgentError | undefined;
  /** Made when a handler wants to see its signal, which most calls are too short for. */
  #abortController: AbortController | undefined;
  #cleanups: Cleanup[] | undefined;
  #deadline: Timer | undefined;
  #bytesOut = 0;
  #code: number | undefined;
  #responded = false;
  #closed = false;
  #attached = false;
  #resumeReading: (() => void) | undefined;
  #unread = 0;

  constructor(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    { peer, backlog }: CallConnection,
    environment: CallEnvironment,
  ) {
    this.#stream = stream;
    this.#environment = environment;
    this.framing = new MessageFraming(environment.maxMessageBytes);
    this.method = String(headers[":path"] ?? "");
    this.peer = peer;
    this.backlog = backlog;
    const traceparent = headers["traceparent"];
    this.#traceparent = typeof traceparent === "string" ? traceparent : undefined;
    this.#startedMs = environment.clock.nowMs();
    this.#watchOutput();
    stream.on("aborted", () => this.abort(cancelledError()));
    stream.on("close", () => this.#finish());
    environment.awaitingRequest.add(this);
  }

  /** Where an error that nobody foresaw goes. */
  get log(): Logger {
    return this.#environment.log;
  }

  /** Why nobody waits for the answer any more, if so. */
  get abortReason(): AgentError | undefined {
    return this.#abortReason;
  }

  /** Aborted when nobody waits for the answer any more; the reason is {@linkcode ServerCall.abortReason}. */
  get signal(): AbortSignal {
    if (this.#abortController === undefined) {
      this.#abortController = new AbortController();
      if (this.#abortReason !== undefined) this.#abortController.abort(this.#abortReason);
    }
    return this.#abortController.signal;
  }

  /** Takes over the deadline that the client sent, on monotonic time. */
  setDeadline(timeoutMs: number): void {
    this.#deadline = this.#environment.clock.setTimer(
      timeoutMs,
      () => this.abort(new AgentError("deadline-exceeded", "Deadline exceeded")),
    );
  }

  /** A handler has the call now: `work` answers, also when the call is aborted, and never rejects. */
  handle(work: () => Promise<void>): void {
    this.#attached = true;
    this.#environment.awaitingRequest.delete(this);
    this.#environment.working(work());
  }

  /**
   * Ends the call's work. Where no handler has it yet, the answer goes out at once. A client that takes no
   * answer (it does not read) loses its stream a moment later, so that nothing waits for it.
   */
  abort(reason: AgentError, code?: number): void {
    if (this.#abortReason !== undefined || this.#closed) return;
    this.#environment.awaitingRequest.delete(this);
    this.#deadline?.cancel();
    this.#setAborted(reason);
    if (reason.kind === "cancelled") return;
    if (!this.#attached) {
      this.refuse(code ?? (reason.kind === "deadline-exceeded" ? 4 : 13), reason.message);
    }
    this.#deadline = this.#environment.clock.setTimer(RESET_AFTER_MS, () => {
      if (!this.#closed) this.#stream.close(constants.NGHTTP2_CANCEL);
    });
  }

  /** Answers with a status only, before any handler did; later answers of grpc-js go nowhere. */
  refuse(code: number, message: string): void {
    if (this.#responded || this.#closed || this.#stream.closed || this.#stream.destroyed) return;
    this.#stream.respond({
      [constants.HTTP2_HEADER_STATUS]: 200,
      [constants.HTTP2_HEADER_CONTENT_TYPE]: "application/grpc+proto",
      "grpc-status": code,
      "grpc-message": encodeURI(message.toWellFormed()),
    }, { endStream: true });
  }

  /**
   * Runs `cleanup` once if the call ends without its OK having been sent: cancelled, expired, failed, or
   * the connection was lost. At once, if that is so already.
   */
  onUnanswered(cleanup: Cleanup): void {
    if (!this.#closed) (this.#cleanups ??= []).push(cleanup);
    else if (!this.#answered) this.#cleanUp(cleanup);
  }

  /** Runs `read` now, or once fewer than `limit` messages wait for the handler. */
  paceRead(read: () => void, limit: number): void {
    if (this.#unread < limit) read();
    else this.#resumeReading = read;
  }

  /** One message more waits for the handler. */
  messageQueued(): void {
    this.#unread++;
  }

  /** The handler took a message. */
  messageTaken(): void {
    this.#unread--;
    this.framing.messageTaken();
    const read = this.#resumeReading;
    this.#resumeReading = undefined;
    read?.();
  }

  get #answered(): boolean {
    return this.#code === OK && this.#stream.rstCode === constants.NGHTTP2_NO_ERROR;
  }

  /** Nobody waits for it, so what it throws goes to the log. */
  #cleanUp(cleanup: Cleanup): void {
    const work = Promise.try(cleanup).then(() => {}, (error) => {
      this.log.error("cleanup failed", { method: this.method, ...errorFields(error) });
    });
    this.#environment.working(work);
  }

  #setAborted(reason: AgentError): void {
    this.#abortReason = reason;
    try {
      this.onAbort?.();
    } catch (error) {
      // The handler has to hear of it all the same.
      this.log.error("abort failed", { method: this.method, ...errorFields(error) });
    }
    this.#abortController?.abort(reason);
  }

  /** Counts what is sent, notes the status, and puts the version on every response. */
  #watchOutput(): void {
    const stream = this.#stream;
    const { respond, sendTrailers, write } = stream;
    stream.respond = (headers, options) => {
      if (this.#responded) return;
      this.#responded = true;
      this.#noteStatus(headers);
      respond.call(stream, { ...headers, "ateenv-version": this.#environment.version }, options);
    };
    stream.sendTrailers = (trailers) => {
      this.#noteStatus(trailers);
      sendTrailers.call(stream, trailers);
    };
    stream.write = ((chunk: Uint8Array, ...rest: [never, never]) => {
      this.#bytesOut += chunk.length;
      return write.call(stream, chunk, ...rest);
    }) as typeof stream.write;
  }

  #noteStatus(headers: object | undefined): void {
    const code = (headers as Record<string, unknown> | undefined)?.["grpc-status"];
    if (code !== undefined) this.#code = Number(code);
  }

  #finish(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#environment.awaitingRequest.delete(this);
    this.#deadline?.cancel();
    const answered = this.#answered;
    if (!answered) {
      // An error that was sent in full leaves nobody to tell; everything else is a client that left.
      if (this.#abortReason === undefined) this.#setAborted(cancelledError());
      for (const cleanup of this.#cleanups ?? []) this.#cleanUp(cleanup);
    }
    this.onClosed?.();
    const sent = this.#stream.rstCode === constants.NGHTTP2_NO_ERROR ? this.#code : undefined;
    this.#environment.finished({
      method: this.method,
      code: sent ?? (this.#code === undefined || this.#code === OK ? CANCELLED : this.#code),
      durationMs: this.#environment.clock.nowMs() - this.#startedMs,
      bytesIn: this.framing.bytes,
      bytesOut: this.#bytesOut,
      peer: this.peer,
      traceparent: this.#traceparent,
    });
    this.#letGo();
  }

  /**
   * The native part of a stream keeps its JavaScript part until V8 looks at the whole heap. Without this it
   * would keep the call, its request and its answer as well.
   */
  #letGo(): void {
    const stream = this.#stream;
    stream.removeAllListeners();
    stream.on("error", ignoreError);
    const { respond, sendTrailers, write } = Object.getPrototypeOf(stream) as ServerHttp2Stream;
    Object.assign(stream, { respond, sendTrailers, write });
  }
}
