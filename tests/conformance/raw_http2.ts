// HTTP/2 frames by hand, for what no well-behaved client sends or orders so.
import { Buffer } from "node:buffer";
import { create } from "@bufbuild/protobuf";
import { StartProcessRequestSchema } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { processServiceDefinition } from "../../src/wire/definitions.ts";
import { concatBytes } from "../helpers/output_reader.ts";

const encoder = new TextEncoder();

const TYPE = { data: 0, headers: 1, reset: 3, settings: 4, ping: 6 } as const;
const FLAG = { none: 0, endStream: 1, ack: 1, endHeaders: 4 } as const;
const CANCEL = 8;

/** What a client sends first, with empty settings. */
export const PREFACE = concatBytes([
  encoder.encode("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  frame(TYPE.settings, FLAG.none, 0),
]);

/** One frame (RFC 9113, section 4.1). */
export function frame(
  type: number,
  flags: number,
  streamId: number,
  payload: Uint8Array = new Uint8Array(0),
): Uint8Array {
  const bytes = new Uint8Array(9 + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, payload.length << 8 | type);
  bytes[4] = flags;
  view.setUint32(5, streamId);
  bytes.set(payload, 9);
  return bytes;
}

/** Header fields without compression: literals that are not indexed (RFC 7541, section 6.2.2). */
function headerBlock(fields: Readonly<Record<string, string>>): Uint8Array {
  const text = (value: string) => {
    const bytes = encoder.encode(value);
    if (bytes.length > 126) throw new RangeError(`too long for a one-byte length: ${value}`);
    return concatBytes([new Uint8Array([bytes.length]), bytes]);
  };
  return concatBytes(
    Object.entries(fields).flatMap((
      [name, value],
    ) => [new Uint8Array([0]), text(name), text(value)]),
  );
}

/** The frames of a call whose request is `body`: gRPC messages with their 5-byte prefixes. */
export function callFrames(
  path: string,
  body: Uint8Array,
  fields: Readonly<Record<string, string>> = {},
): Uint8Array {
  const headers = headerBlock({
    ":method": "POST",
    ":scheme": "http",
    ":path": path,
    ":authority": "agent",
    "content-type": "application/grpc",
    te: "trailers",
    ...fields,
  });
  return concatBytes([
    frame(TYPE.headers, FLAG.endHeaders, 1, headers),
    frame(TYPE.data, FLAG.endStream, 1, body),
  ]);
}

/** A gRPC message: a compression flag, a length (true unless given), the bytes. */
export function grpcMessage(bytes: Uint8Array, flag = 0, length = bytes.length): Uint8Array {
  const prefix = new Uint8Array(5);
  prefix[0] = flag;
  new DataView(prefix.buffer).setUint32(1, length);
  return concatBytes([prefix, bytes]);
}

/** Sends `bytes` and gives what comes back until the server has answered a ping behind them. */
export async function exchange(address: string, bytes: Uint8Array): Promise<Uint8Array> {
  const [hostname = "", port = ""] = address.split(":");
  using connection = await Deno.connect({ hostname, port: Number(port) });
  const mark = encoder.encode("pingmark");
  const writer = connection.writable.getWriter();
  await writer.write(concatBytes([bytes, frame(TYPE.ping, FLAG.none, 0, mark)]));
  const received: Uint8Array[] = [];
  const reader = connection.readable.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
    if (done || value === undefined) break;
    received.push(value);
    if (Buffer.from(concatBytes(received)).includes(mark)) break;
  }
  await writer.close().catch(() => {});
  await reader.cancel().catch(() => {});
  return concatBytes(received);
}

/** A StartProcess whose reset follows it so closely that no answer can have been sent. */
export async function startThenReset(address: string, command: readonly string[]): Promise<void> {
  const { path, requestSerialize } = processServiceDefinition.startProcess;
  const request = requestSerialize(create(StartProcessRequestSchema, { command: [...command] }));
  const reset = new Uint8Array([0, 0, 0, CANCEL]);
  await exchange(
    address,
    concatBytes([
      PREFACE,
      callFrames(path, grpcMessage(request)),
      frame(TYPE.reset, FLAG.none, 1, reset),
    ]),
  );
}
