// HTTP/2 frames and gRPC messages, byte by byte: what a library would not let a client send.
// Pure; must not import anything of ours.

/** Joins byte arrays. */
export function join(...pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined;
}

const encoder = new TextEncoder();

/** Latin text as bytes. */
export function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return encoder.encode(text);
}

/** The client's preface. */
export const PREFACE = bytesOf("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

/** Frame types of RFC 9113. */
export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  rstStream: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** Flags; which one means what depends on the type. */
export const FLAG = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const;

/** A frame that may yet be changed. */
export interface Frame {
  /** Where it is not the payload's length. */
  length?: number;
  type: number;
  flags: number;
  stream: number;
  payload: Uint8Array;
}

/** A frame's bytes. */
export function encodeFrame({ length, type, flags, stream, payload }: Frame): Uint8Array {
  const head = new Uint8Array(9);
  const view = new DataView(head.buffer);
  const size = length ?? payload.length;
  view.setUint8(0, size >>> 16);
  view.setUint16(1, size & 0xffff);
  view.setUint8(3, type);
  view.setUint8(4, flags);
  view.setUint32(5, stream >>> 0);
  return join(head, payload);
}

/** A frame with these values. */
export function frame(type: number, flags: number, stream: number, payload: Uint8Array): Frame {
  return { type, flags, stream, payload };
}

/** Big-endian 32 bits. */
export function uint32(value: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value >>> 0);
  return bytes;
}

/** A SETTINGS payload. */
export function settings(...pairs: readonly (readonly [number, number])[]): Uint8Array {
  return join(...pairs.map(([id, value]) => join(new Uint8Array([id >> 8, id]), uint32(value))));
}

/** HPACK integer with a prefix of `bits`. */
function hpackInteger(value: number, bits: number, first: number): Uint8Array {
  const most = 2 ** bits - 1;
  if (value < most) return new Uint8Array([first | value]);
  const bytes = [first | most];
  let rest = value - most;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push(rest % 128 | 128);
  bytes.push(rest);
  return new Uint8Array(bytes);
}

function hpackText(text: string): Uint8Array {
  const bytes = bytesOf(text);
  return join(hpackInteger(bytes.length, 7, 0), bytes);
}

/** Name and value. */
export type HeaderField = readonly [string, string];

/** A header block of literals that are not indexed: no state on either side. */
export function headerBlock(fields: readonly HeaderField[]): Uint8Array<ArrayBuffer> {
  return join(
    ...fields.flatMap(([name, value]) => [new Uint8Array([0]), hpackText(name), hpackText(value)]),
  );
}

/** What a gRPC client sends ahead of its messages. */
export function grpcHeaders(path: string): HeaderField[] {
  return [
    [":method", "POST"],
    [":scheme", "http"],
    [":path", path],
    [":authority", "localhost"],
    ["content-type", "application/grpc"],
    ["te", "trailers"],
  ];
}

/** A message with its gRPC prefix. */
export function grpcMessage(payload: Uint8Array, flag = 0, length = payload.length) {
  return join(new Uint8Array([flag]), uint32(length), payload);
}
