// The inputs of the fuzzer: a seed gives bytes for one connection, always the same ones.
// Pure; must not import the product.
import { breakFrames, conversation } from "./broken_frames.ts";
import { brokenCall, forbiddenCall } from "./broken_call.ts";
import { Dice } from "./dice.ts";
import {
  bytesOf,
  encodeFrame,
  FLAG,
  FRAME,
  frame,
  grpcHeaders,
  grpcMessage,
  headerBlock,
  join,
  PREFACE,
  settings,
} from "./frames.ts";
import { ORDERLY_CALL } from "./some_call.ts";

/** What is wrong with an input. */
export type FuzzKind = "frames" | "messages" | "http1";

/** Bytes for one connection. */
export interface FuzzInput {
  readonly kind: FuzzKind;
  /** In the pieces in which they are sent. */
  readonly pieces: readonly Uint8Array[];
  /** Inputs that this connection counts for: each broken call of a "messages" connection is one. */
  readonly count: number;
  /** The stream whose call is in order and must be answered; undefined where nothing need be. */
  readonly answered: number | undefined;
  /** Whether the client goes away at once. */
  readonly abrupt: boolean;
}

/** Broken calls on one connection of kind "messages", ahead of one that is in order. */
const CALLS_PER_CONNECTION = 15;

function framesInput(dice: Dice): FuzzInput {
  const frames = conversation(dice);
  breakFrames(dice, frames);
  let bytes = join(PREFACE, ...frames.map(encodeFrame));
  if (dice.chance(0.1)) bytes = bytes.slice(0, dice.below(bytes.length));
  return {
    kind: "frames",
    pieces: dice.cut(bytes),
    count: 1,
    answered: undefined,
    abrupt: dice.chance(0.1),
  };
}

function messagesInput(dice: Dice): FuzzInput {
  const frames = [
    frame(FRAME.settings, 0, 0, settings([4, 1 << 20])),
    frame(FRAME.settings, FLAG.ack, 0, new Uint8Array(0)),
  ];
  let stream = 1;
  for (let call = 0; call < CALLS_PER_CONNECTION; call++, stream += 2) {
    frames.push(...brokenCall(dice, stream));
  }
  const forbidden = dice.chance(0.2);
  if (forbidden) {
    frames.push(...forbiddenCall(dice, stream));
    stream += 2;
  }
  const block = headerBlock(grpcHeaders(ORDERLY_CALL.path));
  frames.push(
    frame(FRAME.headers, FLAG.endHeaders, stream, block),
    frame(FRAME.data, FLAG.endStream, stream, grpcMessage(ORDERLY_CALL.message)),
  );
  return {
    kind: "messages",
    pieces: dice.cut(join(PREFACE, ...frames.map(encodeFrame))),
    count: CALLS_PER_CONNECTION,
    answered: forbidden ? undefined : stream,
    abrupt: false,
  };
}

const HTTP1_REQUESTS = [
  "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n",
  "HEAD /healthz HTTP/1.0\r\n\r\n",
  "GET /metrics HTTP/1.1\r\nAuthorization: Bearer x\r\nHost: y\r\n\r\n",
  "POST /readyz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
  "GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

function http1Input(dice: Dice): FuzzInput {
  const request = dice.mutate(bytesOf(dice.pick(HTTP1_REQUESTS)));
  return {
    kind: "http1",
    pieces: dice.cut(request),
    count: 1,
    answered: undefined,
    abrupt: false,
  };
}

/** The input of a seed: about as many broken calls as connections with broken frames. */
export function fuzzInput(seed: number): FuzzInput {
  const dice = new Dice(seed);
  const choice = dice.next();
  if (choice < 0.9) return framesInput(dice);
  return choice < 0.94 ? http1Input(dice) : messagesInput(dice);
}
