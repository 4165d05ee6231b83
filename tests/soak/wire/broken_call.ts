// One gRPC call with something wrong in its headers, its framing or its message.
// Pure; must not import the product.
import type { Dice } from "./dice.ts";
import {
  FLAG,
  FRAME,
  type Frame,
  frame,
  grpcHeaders,
  grpcMessage,
  headerBlock,
  type HeaderField,
} from "./frames.ts";
import { someCall } from "./some_call.ts";

/** Headers that gRPC gives a meaning to, or that look as if it did. */
const ODD_HEADERS: readonly HeaderField[] = [
  ["grpc-timeout", "99999999H"],
  ["grpc-timeout", "0n"],
  ["grpc-timeout", "1m"],
  ["grpc-timeout", "-1S"],
  ["grpc-timeout", ""],
  ["grpc-timeout", "123456789S"],
  ["grpc-encoding", "gzip"],
  ["grpc-encoding", "deflate"],
  ["grpc-encoding", "identity"],
  ["grpc-encoding", "no-such-encoding"],
  ["grpc-encoding", "gzip, gzip"],
  ["grpc-accept-encoding", "gzip,deflate"],
  ["grpc-accept-encoding", "\u00ff"],
  ["x-bin", "AAAA"],
  ["x-bin", "A"],
  ["x-bin", "%%%%"],
  ["x-text", "caf\u00e9"],
  ["x-nul", "a\0b"],
  ["x-line", "a\r\nb: c"],
  ["authorization", "Bearer x"],
  ["authorization", ""],
  ["", "no name"],
  ["host", "a,b"],
  ["cookie", "a=b"],
  ["traceparent", "00-zz"],
  ["user-agent", "x".repeat(1000)],
  ["expect", "100-continue"],
  ["priority", "u=9"],
];

/** Headers that HTTP/2 itself forbids: the runtime ends the connection. */
const FORBIDDEN_HEADERS: readonly HeaderField[] = [
  ["content-length", "5"],
  ["content-length", "-1"],
  ["content-length", "1, 2"],
  ["connection", "close"],
  ["transfer-encoding", "chunked"],
  ["upgrade", "h2c"],
  ["Upper", "case"],
  [":path", "/second"],
  [":status", "200"],
];

const ODD_TYPES = [
  "application/grpc+json",
  "application/json",
  "",
  "application/grpc-web",
  "text/html",
];
const ODD_VERBS = ["GET", "PUT", "HEAD", "post"];

function replace(fields: HeaderField[], name: string, value: string): HeaderField[] {
  return fields.map((field) => field[0] === name ? [name, value] : field);
}

function encodeCall(
  dice: Dice,
  stream: number,
  fields: readonly HeaderField[],
  framed: readonly Uint8Array[],
  ends: boolean,
): Frame[] {
  const pieces = framed.flatMap((bytes) => dice.chance(0.3) ? dice.cut(bytes) : [bytes]);
  const frames = [
    frame(FRAME.headers, FLAG.endHeaders, stream, headerBlock(fields)),
    ...pieces.map((piece) => frame(FRAME.data, 0, stream, piece)),
  ];
  if (ends) frames.at(-1)!.flags |= FLAG.endStream;
  return frames;
}

/** A call that is wrong for gRPC and right for HTTP/2: it ends, and the connection lives on. */
export function brokenCall(dice: Dice, stream: number): Frame[] {
  const { path, message } = someCall(dice);
  let fields = grpcHeaders(path);
  let payload = message;
  let flag = 0;
  let length: number | undefined;
  let ends = true;
  for (let times = 1 + dice.below(2); times > 0; times--) {
    switch (dice.below(10)) {
      case 0:
        flag = dice.pick([1, 1, 2, 128, 255]);
        if (dice.chance(0.5)) {
          fields.push(["grpc-encoding", dice.pick(["gzip", "deflate", "zip"])]);
        }
        break;
      case 1:
        length = dice.pick([
          0,
          1,
          message.length - 1,
          message.length + 1,
          17 * 2 ** 20,
          2 ** 32 - 1,
        ]);
        break;
      case 2:
        fields = replace(fields, "content-type", dice.pick(ODD_TYPES));
        break;
      case 3: {
        const missing = dice.pick(["te", "content-type"]);
        fields = fields.filter(([name]) => name !== missing);
        break;
      }
      case 4:
        fields = replace(
          fields,
          ":path",
          dice.pick(["/", "//", `${path}/`, `${path}?x=%00`, `/${"a".repeat(3000)}`]),
        );
        break;
      case 5:
        fields = replace(fields, ":method", dice.pick(ODD_VERBS));
        break;
      case 6:
        for (let more = 1 + dice.below(3); more > 0; more--) {
          const odd = dice.pick(ODD_HEADERS);
          // HTTP/2 itself forbids a second one of some.
          if (!fields.some(([name]) => name === odd[0])) fields.push(odd);
        }
        break;
      case 7:
        ends = false;
        break;
      default:
        payload = dice.mutate(payload);
    }
  }
  const messages = [grpcMessage(payload, flag, length ?? payload.length)];
  if (dice.chance(0.2)) messages.push(grpcMessage(dice.mutate(message)));
  return encodeCall(dice, stream, fields, messages, ends);
}

/** A call that HTTP/2 forbids. */
export function forbiddenCall(dice: Dice, stream: number): Frame[] {
  const { path, message } = someCall(dice);
  let fields = grpcHeaders(path);
  switch (dice.below(4)) {
    case 0:
      fields = fields.filter(([name]) => name !== ":authority");
      break;
    case 1:
      fields = replace(fields, ":path", dice.pick(["", path.slice(1), "*"]));
      break;
    case 2:
      fields = replace(fields, ":method", dice.pick(["", "CONNECT"]));
      break;
    default:
      fields.push(dice.pick(FORBIDDEN_HEADERS));
  }
  return encodeCall(dice, stream, fields, [grpcMessage(message)], true);
}
