// The gate between an HTTP/2 stream and grpc-js: who may pass, until when, and what is written down.
// Server only; must not import the domain or a service.
import "./http2_guard.ts";
import {
  type Metadata,
  ServerInterceptingCall,
  type ServerInterceptor,
  status,
} from "@grpc/grpc-js";
import {
  constants,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { countMoved } from "../buffer_garbage.ts";
import { AgentError } from "../errors.ts";
import {
  type CallConnection,
  type CallEnvironment,
  RESET_AFTER_MS,
  ServerCall,
} from "./server_call.ts";
import { parseTimeout } from "./grpc_timeout.ts";
import { MessageBudget } from "./message_budget.ts";
import { KIND_TO_STATUS } from "./status.ts";
import { TimeoutQueue } from "./timeout_queue.ts";

/** What the gate asks of the server around it. */
export interface GateOptions extends Omit<CallEnvironment, "awaitingRequest"> {
  /** Milliseconds within which a request must have arrived (uploads: their first message). */
  readonly requestTimeoutMs: number;
  /** Why the call may not pass, or undefined. Called before anything of its body is looked at. */
  refusal(
    method: string,
    headers: IncomingHttpHeaders,
    session: ServerHttp2Session,
  ): AgentError | undefined;
  /** Answers a plain GET or HEAD over HTTP/2. */
  answerHttp(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void;
  /** A call was let in, or such a call is over: `change` is 1 or -1. */
  admitted(session: ServerHttp2Session, method: string, change: 1 | -1): void;
  /** The connection that `session` came by. */
  connectionOf(session: ServerHttp2Session): CallConnection;
}

const CALL = "ateenv.call";
/** Messages of an upload that may wait for its handler: each may be `maxMessageBytes` large. */
const MAX_UNREAD_MESSAGES = 2;
/**
 * What the messages may cost, all calls together, that are not whole yet or not taken. Honest ones are on
 * their way for milliseconds; a client that never ends its messages, or sends them compressed a thousand
 * times, would fill any memory.
 */
const MAX_HELD_BYTES = 128 * 1024 * 1024;

/**
 * The call that a handler's metadata belongs to.
 * @throws {Error} where the server was set up without the gate
 */
export function callOf(metadata: Metadata): ServerCall {
  const call = metadata.getOpaque(CALL);
  if (!(call instanceof ServerCall)) throw new Error("Cannot handle a call that passed no gate");
  return call;
}

/** A call whose messages count. */
interface HeldCall {
  readonly call: ServerCall;
  readonly stream: ServerHttp2Stream;
}

/** The listener of grpc-js for the streams of its HTTP/2 server. */
type StreamListener = (
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  flags: number,
  rawHeaders: string[],
) => void;

/** See the head of this file. */
export class CallGate {
  readonly #options: GateOptions;
  readonly #environment: CallEnvironment;
  readonly #budget: MessageBudget<HeldCall>;
  readonly #awaitingRequest: TimeoutQueue<ServerCall>;
  /** Set only while grpc-js takes over a stream, which it does synchronously. */
  #entering: ServerCall | undefined;

  constructor(options: GateOptions) {
    this.#options = options;
    this.#awaitingRequest = new TimeoutQueue(options.clock, options.requestTimeoutMs, (call) => {
      call.abort(new AgentError("deadline-exceeded", "the request did not arrive in time"));
    });
    this.#environment = { ...options, awaitingRequest: this.#awaitingRequest };
    this.#budget = new MessageBudget(Math.max(MAX_HELD_BYTES, 4 * options.maxMessageBytes));
  }

  /** Goes into the grpc-js server's options: ties its calls to those of the gate. */
  readonly interceptor: ServerInterceptor = (method, next) => {
    const call = this.#entering;
    if (call === undefined) throw new Error("Cannot start a call that passed no gate");
    return new GatedCall(next, call, method.requestStream);
  };

  /** Stops the timer that waits for requests; those under way wait for ever. */
  close(): void {
    this.#awaitingRequest.clear();
  }

  /** Puts the gate before what grpc-js does with the streams of `http2Server`. */
  guard(http2Server: Http2Server): void {
    const inner = http2Server.listeners("stream") as StreamListener[];
    http2Server.removeAllListeners("stream");
    const onStream: StreamListener = (stream, headers, flags, rawHeaders) => {
      // grpc-js listens for one error only; a second one would end the process.
      stream.on("error", () => {});
      try {
        this.#enter(stream, headers, () => {
          for (const listener of inner) {
            listener.call(http2Server, stream, headers, flags, rawHeaders);
          }
        });
      } catch (error) {
        this.#options.log.error("stream failed", { error: String(error) });
        stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      }
    };
    http2Server.on("stream", onStream as (...args: unknown[]) => void);
  }

  #enter(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, pass: () => void): void {
    const session = stream.session as ServerHttp2Session | undefined;
    if (session === undefined || stream.destroyed) return;
    stream.on("finish", () => this.#discardRest(stream));
    if (headers[":method"] !== "POST") {
      this.#options.answerHttp(stream, headers);
      return;
    }
    // grpc-js would say 415 too, but Deno's constants lack it, and 200 goes out.
    if (!String(headers["content-type"] ?? "").startsWith("application/grpc")) {
      stream.respond({ ":status": 415 }, { endStream: true });
      return;
    }
    const call = new ServerCall(
      stream,
      headers,
      this.#options.connectionOf(session),
      this.#environment,
    );
    const refusal = this.#options.refusal(call.method, headers, session);
    if (refusal !== undefined) {
      call.refuse(KIND_TO_STATUS[refusal.kind], refusal.message);
      return;
    }
    const held: HeldCall = { call, stream };
    call.onClosed = () => {
      this.#budget.release(held);
      this.#options.admitted(session, call.method, -1);
    };
    this.#options.admitted(session, call.method, 1);
    this.#watchInput(held);
    try {
      const timeoutMs = parseTimeout(headers["grpc-timeout"] as string | undefined);
      if (timeoutMs !== undefined) call.setDeadline(timeoutMs);
    } catch (error) {
      call.refuse(status.INTERNAL, (error as AgentError).message);
      return;
    }
    // grpc-js would take it modulo 2^32 ms and by the wall clock.
    delete headers["grpc-timeout"];
    this.#entering = call;
    try {
      pass();
    } finally {
      this.#entering = undefined;
    }
  }

  /**
   * The answer is complete: what else comes of the request is of no use. A client that goes on sending it
   * is stopped, but not at once: some take a reset right behind the answer for a failure.
   */
  #discardRest(stream: ServerHttp2Stream): void {
    if (stream.readableEnded || stream.destroyed) return;
    stream.resume();
    const timer = this.#options.clock.setTimer(
      RESET_AFTER_MS,
      () => stream.close(constants.NGHTTP2_NO_ERROR),
    );
    stream.once("close", () => timer.cancel());
  }

  /** prependListener: `on("data")` would start the flow, and grpc-js must not see the end first. */
  #watchInput(held: HeldCall): void {
    const { call, stream } = held;
    const count = () => {
      if (stream.closed) return;
      const leaving = this.#budget.hold(held, call.framing.heldBytes);
      if (leaving !== undefined) giveUp(leaving);
    };
    call.framing.onTaken = (cost) => {
      // Inflated, a message was a thousand times what came in.
      countMoved(cost);
      count();
    };
    const onData = (piece: Uint8Array) => {
      const fault = call.framing.push(piece);
      count();
      if (fault === undefined) return;
      stream.removeListener("data", onData);
      const message = fault === "flag"
        ? "invalid compression flag"
        : "message in too many small pieces";
      call.abort(new AgentError("internal", message));
    };
    stream.prependListener("data", onData);
    stream.prependListener("end", () => {
      if (!call.framing.complete) {
        call.abort(new AgentError("internal", "the request ended inside a message"));
      }
    });
  }
}

/** Ends a call for the sake of all others. grpc-js looks at no piece of a stream that is being closed. */
function giveUp({ call, stream }: HeldCall): void {
  call.abort(
    new AgentError("resource-exhausted", "too many unfinished messages at a time"),
    status.RESOURCE_EXHAUSTED,
  );
  stream.close(constants.NGHTTP2_NO_ERROR);
}

/** Hands the gate's call to the handler, and paces the requests of an upload. */
class GatedCall extends ServerInterceptingCall {
  readonly #call: ServerCall;
  readonly #paced: boolean;

  constructor(
    next: ConstructorParameters<typeof ServerInterceptingCall>[0],
    call: ServerCall,
    paced: boolean,
  ) {
    super(next);
    this.#call = call;
    this.#paced = paced;
  }

  override start(listener: Parameters<ServerInterceptingCall["start"]>[0]): void {
    super.start({
      onReceiveMetadata: (metadata) => {
        metadata.setOpaque(CALL, this.#call);
        listener.onReceiveMetadata(metadata);
      },
      onReceiveMessage: (message) => {
        if (this.#paced) this.#call.messageQueued();
        else this.#call.framing.messageTaken();
        listener.onReceiveMessage(message);
      },
      onReceiveHalfClose: () => listener.onReceiveHalfClose(),
      onCancel: () => listener.onCancel(),
    });
  }

  override startRead(): void {
    if (this.#paced) this.#call.paceRead(() => super.startRead(), MAX_UNREAD_MESSAGES);
    else super.startRead();
  }
}
