// What a service is made of: plain async functions, turned into grpc-js handlers.
// Server only; must not import the domain. Back-pressure, cancellation and errors are settled here.
import "./http2_guard.ts";
import type {
  handleBidiStreamingCall,
  handleClientStreamingCall,
  handleServerStreamingCall,
  handleUnaryCall,
  Metadata,
  sendUnaryData,
  ServerDuplexStream,
} from "@grpc/grpc-js";
import { type AgentError, cancelledError } from "../errors.ts";
import { bytesPerStream } from "../limits.ts";
import { callOf } from "./call_gate.ts";
import type { Cleanup, ServerCall } from "./server_call.ts";
import { statusOf } from "./status_answer.ts";

/** What a handler may know of its call. */
export interface CallContext {
  /** Path of the method: `/package.Service/Method`. */
  readonly method: string;
  /** Address of the client, for the log only. */
  readonly peer: string;
  /** What the client sent along. */
  readonly metadata: Metadata;
  /**
   * Aborted when the client cancels or is gone, or the deadline passes; the reason is an AgentError. The
   * client has its answer by then, so a handler only has to stop.
   */
  readonly signal: AbortSignal;
  /** Ends the call with that status. A client that does not take it loses its stream a moment later. */
  abort(reason: AgentError): void;
  /** Whether the call is over already, so that an answer would reach nobody. */
  cancelledBeforeAnswer(): boolean;
  /**
   * Runs `cleanup` once if the call ends without its OK answer having been sent (cancelled, expired,
   * failed, connection lost, also between the handler's return and the sending); at once if so already.
   * What it throws is logged.
   */
  onUnanswered(cleanup: Cleanup): void;
}

/** Calls with messages that were handed to HTTP/2 and not taken by it yet: they share what that may cost. */
let unsentCalls = 0;
/** What a message counts at least: bounds the number of small ones. */
const MIN_WEIGHT_BYTES = 16 * 1024;

class HandlerContext implements CallContext {
  readonly #call: ServerCall;
  readonly metadata: Metadata;

  constructor(call: ServerCall, metadata: Metadata) {
    this.#call = call;
    this.metadata = metadata;
  }

  get method(): string {
    return this.#call.method;
  }

  get peer(): string {
    return this.#call.peer;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  abort(reason: AgentError): void {
    this.#call.abort(reason);
  }

  cancelledBeforeAnswer(): boolean {
    return this.#call.abortReason !== undefined;
  }

  onUnanswered(cleanup: Cleanup): void {
    this.#call.onUnanswered(cleanup);
  }
}

/** Sends one answer: the handler's, or as soon as the call is aborted, the reason of that. */
async function answerOnce<A>(
  call: ServerCall,
  send: sendUnaryData<A>,
  handle: () => Promise<A> | A,
): Promise<void> {
  let sent = false;
  const sendOnce = (error: unknown, answer?: A) => {
    if (sent) return;
    sent = true;
    if (error === undefined) send(null, answer);
    else send(statusOf(error, call));
  };
  call.onAbort = () => sendOnce(call.abortReason);
  try {
    throwIfAborted(call);
    const answer = await handle();
    sendOnce(undefined, answer);
  } catch (error) {
    sendOnce(error);
  } finally {
    call.onAbort = undefined;
  }
}

function throwIfAborted(call: ServerCall): void {
  if (call.abortReason !== undefined) throw call.abortReason;
}

/** A method with one request and one answer. */
export function unary<Q, A>(
  handle: (request: Q, context: CallContext) => Promise<A> | A,
): handleUnaryCall<Q, A> {
  return (grpcCall, send) => {
    const call = callOf(grpcCall.metadata);
    call.handle(() =>
      answerOnce(
        call,
        send,
        () => handle(grpcCall.request, new HandlerContext(call, grpcCall.metadata)),
      )
    );
  };
}

/** A method with a stream of requests and one answer. The handler need not read them all. */
export function clientStreaming<Q, A>(
  handle: (requests: AsyncIterable<Q>, context: CallContext) => Promise<A> | A,
): handleClientStreamingCall<Q, A> {
  return (grpcCall, send) => {
    const call = callOf(grpcCall.metadata);
    const requests = readRequests(grpcCall as unknown as ServerDuplexStream<Q, A>, call);
    call.handle(() =>
      answerOnce(call, send, () => handle(requests, new HandlerContext(call, grpcCall.metadata)))
    );
  };
}

/**
 * A method with one request and a stream of answers. `weigh` gives the bytes of a message: no more are
 * produced while {@linkcode bytesPerStream} wait for the client.
 */
export function serverStreaming<Q, A>(
  handle: (request: Q, context: CallContext) => AsyncIterable<A>,
  weigh: (message: A) => number = () => 0,
): handleServerStreamingCall<Q, A> {
  return (grpcCall) => {
    const call = callOf(grpcCall.metadata);
    call.handle(() =>
      sendAll(
        call,
        grpcCall,
        () => handle(grpcCall.request, new HandlerContext(call, grpcCall.metadata)),
        weigh,
      )
    );
  };
}

/** A method with a stream of requests and a stream of answers. */
export function bidiStreaming<Q, A>(
  handle: (requests: AsyncIterable<Q>, context: CallContext) => AsyncIterable<A>,
  weigh: (message: A) => number = () => 0,
): handleBidiStreamingCall<Q, A> {
  return (grpcCall) => {
    const call = callOf(grpcCall.metadata);
    const requests = readRequests(grpcCall, call);
    call.handle(() =>
      sendAll(
        call,
        grpcCall,
        () => handle(requests, new HandlerContext(call, grpcCall.metadata)),
        weigh,
      )
    );
  };
}

/** The part of a grpc-js call that takes answers. */
interface AnswerSink<A> {
  write(message: A, sent: () => void): boolean;
  end(): unknown;
  emit(event: "error", error: unknown): boolean;
}

async function sendAll<A>(
  call: ServerCall,
  sink: AnswerSink<A>,
  produce: () => AsyncIterable<A>,
  weigh: (message: A) => number,
): Promise<void> {
  let ended = false;
  let unsentBytes = 0;
  let counted = false;
  let stopWaiting: (() => void) | undefined;
  let onSent: (() => void) | undefined;
  const count = (isUnsent: boolean) => {
    if (isUnsent === counted) return;
    counted = isUnsent;
    unsentCalls += isUnsent ? 1 : -1;
  };
  // What is not sent by then never is, and nobody says so of each message.
  call.onUnanswered(() => count(false));
  const end = (error?: unknown) => {
    if (ended) return;
    ended = true;
    if (error === undefined) sink.end();
    else sink.emit("error", statusOf(error, call));
  };
  call.onAbort = () => {
    end(call.abortReason);
    stopWaiting?.();
  };
  try {
    throwIfAborted(call);
    for await (const message of produce()) {
      if (call.abortReason !== undefined) break;
      const bytes = Math.max(weigh(message), MIN_WEIGHT_BYTES);
      count(true);
      unsentBytes += bytes;
      sink.write(message, () => {
        unsentBytes -= bytes;
        if (unsentBytes === 0) count(false);
        onSent?.();
      });
      while (call.abortReason === undefined) {
        const { isFull } = call.backlog;
        if (!isFull && unsentBytes <= bytesPerStream(unsentCalls)) break;
        const { promise, resolve } = Promise.withResolvers<void>();
        stopWaiting = resolve;
        if (isFull) call.backlog.whenDrained(resolve);
        else onSent = resolve;
        await promise;
        call.backlog.cancel(resolve);
        onSent = undefined;
      }
      if (call.abortReason !== undefined) break;
    }
    end();
  } catch (error) {
    end(error);
  } finally {
    call.onAbort = undefined;
  }
}

async function* readRequests<Q>(source: ServerDuplexStream<Q, unknown>, call: ServerCall) {
  try {
    // A destroyed call could take no answers.
    for await (const request of source.iterator({ destroyOnReturn: false })) {
      call.messageTaken();
      yield request as Q;
    }
  } catch (error) {
    // grpc-js destroys the stream when the call is over: "premature close" says nothing more.
    throwIfAborted(call);
    throw source.cancelled ? cancelledError() : error;
  }
  // A client may send the end of its stream just ahead of a reset: look again one turn later.
  await new Promise<void>((resolve) => setImmediate(resolve));
  throwIfAborted(call);
  if (source.cancelled) throw cancelledError();
}
