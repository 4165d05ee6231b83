// What a hostile or broken client may do to the port. After each, the next client is served as before.
import { Buffer } from "node:buffer";
import { assert, assertEquals } from "@std/assert";
import http2 from "node:http2";
import { gzipSync } from "node:zlib";
import { addressOf, EchoClient } from "../helpers/echo_client.ts";
import { memoryLog, startEchoServer } from "../helpers/echo_server.ts";
import {
  callHeaders,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  envelope,
  frame,
  GOAWAY,
  headerBlock,
  HEADERS,
  PING,
  PREFACE,
  RawConnection,
  RST_STREAM,
  SETTINGS,
} from "../helpers/raw_http2.ts";

/** grpc-js reads variables and the kernel's name. */
const permissions = {
  net: ["127.0.0.1"],
  env: true,
  sys: true,
  read: true,
} as const satisfies Deno.PermissionOptions;

const GET_PROCESS = "/ateenv.v1alpha.ProcessService/GetProcess";
const WRITE_FILE = "/ateenv.v1alpha.FileSystemService/WriteFile";

async function assertServes(address: string): Promise<void> {
  using client = new EchoClient(address);
  assertEquals((await client.get()).code, 0);
}

/** Opens and resets a stream. */
function openAndReset(id: number): Uint8Array {
  return new Uint8Array([
    ...frame(HEADERS, END_HEADERS, id, callHeaders(GET_PROCESS)),
    ...frame(RST_STREAM, 0, id, Uint8Array.of(0, 0, 0, 8)),
  ]);
}

const FLOODS: readonly (readonly [string, Uint8Array])[] = [
  ["PING", frame(PING, 0, 0, new Uint8Array(8))],
  ["SETTINGS", frame(SETTINGS, 0, 0)],
  ["empty DATA", frame(DATA, 0, 1)],
  ["RST_STREAM", frame(RST_STREAM, 0, 1, Uint8Array.of(0, 0, 0, 8))],
  ["PRIORITY", frame(2, 0, 1, new Uint8Array(5))],
  ["unknown frames", frame(99, 0, 0)],
];

for (const [name, bytes] of FLOODS) {
  Deno.test(
    `a flood of ${name} ends its connection and nothing else`,
    { permissions },
    async () => {
      const lines: string[] = [];
      await using server = await startEchoServer({ log: memoryLog(lines) });
      const address = addressOf(server);
      using raw = await RawConnection.open(address);
      await raw.send(frame(HEADERS, END_HEADERS, 1, callHeaders(WRITE_FILE)));
      await raw.flood(bytes, 20_000);
      // nghttp2 has an eye on RST_STREAM too and may be first.
      if (name !== "RST_STREAM") {
        assert(lines.some((line) => line.includes("too many")), lines.join(""));
      }
      await assertServes(address);
    },
  );
}

Deno.test("a flood of opened and reset calls ends its connection", { permissions }, async () => {
  await using server = await startEchoServer();
  using raw = await RawConnection.open(addressOf(server));
  const closed = raw.untilClosed();
  let id = 1;
  while (id < 20_001 && await raw.send(openAndReset(id))) id += 2;
  await closed;
  await assertServes(addressOf(server));
});

Deno.test("a flood of CONTINUATION ends its connection", { permissions }, async () => {
  await using server = await startEchoServer();
  using raw = await RawConnection.open(addressOf(server));
  await raw.send(frame(HEADERS, 0, 1, callHeaders(GET_PROCESS)));
  await raw.flood(frame(CONTINUATION, 0, 1, headerBlock({ x: "y" })), 20_000);
  await assertServes(addressOf(server));
});

Deno.test("a flood is told so, with GOAWAY", { permissions }, async () => {
  await using server = await startEchoServer();
  using raw = await RawConnection.open(addressOf(server));
  for (let i = 0; i < 60; i++) await raw.send(frame(SETTINGS, 0, 0));
  const types = await raw.untilClosed();
  assert(types.includes(GOAWAY), `received ${types}`);
});

Deno.test(
  "headers that unpack to much more than they are end their call",
  { permissions },
  async () => {
    await using server = await startEchoServer();
    using raw = await RawConnection.open(addressOf(server));
    // One long field into the table, then thousands of references to it, a byte each.
    const field = new Uint8Array(3_900).fill(0x61);
    const first = [0x40, 1, 0x78, 0x7f, ...[0xbd, 0x1d], ...field];
    const bomb = new Uint8Array([
      ...callHeaders(GET_PROCESS),
      ...first,
      ...Array(10_000).fill(0xbe),
    ]);
    await raw.send(frame(HEADERS, END_HEADERS, 1, bomb));
    const next = await raw.receive();
    assert(next !== undefined);
    await assertServes(addressOf(server));
  },
);

const BROKEN_FRAMES: readonly (readonly [string, Uint8Array])[] = [
  ["a frame of 16 MiB", Uint8Array.of(255, 255, 255, 0, 0, 0, 0, 0, 1)],
  ["HEADERS on stream 0", frame(HEADERS, END_HEADERS, 0, callHeaders(GET_PROCESS))],
  ["HEADERS on an even stream", frame(HEADERS, END_HEADERS, 2, callHeaders(GET_PROCESS))],
  ["DATA on a stream that is not open", frame(DATA, 0, 9, new Uint8Array(10))],
  ["a SETTINGS frame of 5 bytes", frame(SETTINGS, 0, 0, new Uint8Array(5))],
  ["a PING of 3 bytes", frame(PING, 0, 0, new Uint8Array(3))],
  ["broken HPACK", frame(HEADERS, END_HEADERS, 1, new Uint8Array(50).fill(255))],
  ["a window of more than 2^31", frame(8, 0, 0, Uint8Array.of(127, 255, 255, 255))],
  ["CONTINUATION out of nowhere", frame(CONTINUATION, END_HEADERS, 1, callHeaders(GET_PROCESS))],
  ["PUSH_PROMISE from a client", frame(5, END_HEADERS, 1, new Uint8Array(20))],
];

for (const [name, bytes] of BROKEN_FRAMES) {
  Deno.test(`${name} ends the connection at most`, { permissions }, async () => {
    await using server = await startEchoServer();
    using raw = await RawConnection.open(addressOf(server));
    await raw.send(bytes);
    // Whoever is still there answers a ping; whoever is not has closed.
    await raw.send(frame(PING, 0, 0, new Uint8Array(8)));
    for (;;) {
      const next = await raw.receive();
      if (next === undefined || (next.type === PING && next.flags === 1)) break;
    }
    await assertServes(addressOf(server));
  });
}

Deno.test(
  "connections that say nothing, garbage or too little are closed",
  { permissions },
  async () => {
    await using server = await startEchoServer({ limits: { openingTimeoutMs: 200 } });
    const encoder = new TextEncoder();
    const beginnings = [
      new Uint8Array(),
      Uint8Array.of(0x16, 3, 1, 2, 0, 1, 0),
      encoder.encode("hello\r\n\r\n"),
      encoder.encode("GET /readyz HTTP/1.1\r\nHost: x"),
      encoder.encode("GET /readyz HTTP/1.1\r\n" + "x: y\r\n".repeat(4_000)),
      PREFACE.slice(0, 20),
      encoder.encode("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
      new Uint8Array(100_000),
    ];
    await Promise.all(beginnings.map(async (bytes) => {
      using raw = await RawConnection.open(addressOf(server), false);
      await raw.send(bytes);
      const buffer = new Uint8Array(10_000);
      while (await raw.conn.read(buffer).catch(() => null) !== null);
    }));
    await assertServes(addressOf(server));
  },
);

Deno.test(
  "an HTTP/1.1 request a byte at a time runs into the timeout",
  { permissions },
  async () => {
    await using server = await startEchoServer({ limits: { openingTimeoutMs: 200 } });
    using raw = await RawConnection.open(addressOf(server), false);
    await raw.send(new TextEncoder().encode("GET / HTTP/1.1\r\n"));
    const closed = raw.conn.read(new Uint8Array(100)).catch(() => null);
    let over = false;
    closed.then(() => over = true);
    while (!over) {
      await raw.send(new TextEncoder().encode("x"));
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  },
);

Deno.test("a request that never comes is answered in time", { permissions }, async () => {
  await using server = await startEchoServer({ limits: { requestTimeoutMs: 100 } });
  const { status } = await rawCall(addressOf(server), GET_PROCESS, [], { end: false });
  assertEquals(status, "4");
});

Deno.test("beyond the limit the longest idle connection goes, busy ones stay", {
  permissions,
}, async () => {
  await using server = await startEchoServer({ limits: { maxConnections: 3 } });
  const address = addressOf(server);
  using idle = await RawConnection.open(address);
  // Its settings were answered: it is accepted.
  await idle.receive();
  using busy = new EchoClient(address);
  const call = busy.kill();
  using second = new EchoClient(address);
  const secondCall = second.kill();
  using third = new EchoClient(address);
  assertEquals((await third.get()).code, 0);
  await idle.untilClosed();
  call.cancel();
  secondCall.cancel();
  assertEquals([(await call).code, (await secondCall).code], [1, 1]);
});

/** One call by hand: its pieces, then what came back. */
function rawCall(
  address: string,
  path: string,
  pieces: readonly Uint8Array[],
  { end = true, headers = {} }: { end?: boolean; headers?: Record<string, string> } = {},
): Promise<{ http: number; status: string | undefined; message: string }> {
  const session = http2.connect(`http://${address}`);
  return new Promise((resolve, reject) => {
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      "te": "trailers",
      ...headers,
    });
    let all: Record<string, unknown> = {};
    stream.on("response", (received) => all = { ...all, ...received });
    stream.on("trailers", (received) => all = { ...all, ...received });
    stream.on("data", () => {});
    stream.on("error", reject);
    session.on("error", reject);
    session.on("close", () =>
      resolve({
        http: Number(all[":status"]),
        status: all["grpc-status"] as string | undefined,
        message: String(all["grpc-message"] ?? ""),
      }));
    stream.on("close", () => session.close());
    for (const piece of pieces) stream.write(piece);
    if (end) stream.end();
  });
}

const START = "/ateenv.v1alpha.ProcessService/StartProcess";
/** StartProcessRequest{command: ["hi"]} */
const HI = Uint8Array.of(0x0a, 2, 0x68, 0x69);
const INTERNAL = "13", OK = "0", UNIMPLEMENTED = "12", EXHAUSTED = "8";

const MESSAGES: readonly (readonly [
  string,
  string,
  readonly Uint8Array[],
  string,
  Record<string, string>?,
])[] = [
  ["a plain message", START, [envelope(HI)], OK],
  ["a message in one-byte pieces", START, [...envelope(HI)].map((b) => Uint8Array.of(b)), OK],
  ["unknown fields", START, [envelope(Uint8Array.of(...HI, 0x7a, 1, 1))], OK],
  ["an empty message", START, [envelope(new Uint8Array())], OK],
  ["no message", START, [], UNIMPLEMENTED],
  ["two messages", START, [envelope(HI), envelope(HI)], UNIMPLEMENTED],
  ["gzip", START, [envelope(gzipSync(HI), 1)], OK, { "grpc-encoding": "gzip" }],
  ["gzip that is none", START, [envelope(HI, 1)], INTERNAL, { "grpc-encoding": "gzip" }],
  ["an encoding that nobody knows", START, [envelope(HI, 1)], UNIMPLEMENTED, {
    "grpc-encoding": "snappy",
  }],
  ["a flag that nobody knows", START, [envelope(HI, 7)], INTERNAL],
  ["a length beyond the end", START, [envelope(HI, 0, 100)], INTERNAL],
  ["an upload that ends inside a message", WRITE_FILE, [
    envelope(Uint8Array.of(0x0a, 1, 0x78)),
    envelope(Uint8Array.of(0x12, 90, 1, 2, 3), 0, 92),
  ], INTERNAL],
  ["a length of 4 GiB", START, [envelope(HI, 0, 2 ** 32 - 1)], EXHAUSTED],
  [
    "a message that unpacks to 64 MiB",
    WRITE_FILE,
    [
      envelope(gzipSync(Buffer.alloc(64 * 1024 * 1024)), 1),
    ],
    EXHAUSTED,
    { "grpc-encoding": "gzip" },
  ],
  ["truncated protobuf", START, [envelope(Uint8Array.of(0x0a, 50, 1))], INTERNAL],
  ["random protobuf", START, [envelope(new Uint8Array(100).fill(0xff))], INTERNAL],
  ["text that is not UTF-8", START, [envelope(Uint8Array.of(0x0a, 2, 0xff, 0xfe))], INTERNAL],
  ["a malformed deadline", START, [envelope(HI)], INTERNAL, { "grpc-timeout": "soon" }],
  ["a deadline in years", START, [envelope(HI)], OK, { "grpc-timeout": "99999999S" }],
  ["binary metadata that is no base64", START, [envelope(HI)], OK, { "x-bin": "***" }],
  ["large metadata", START, [envelope(HI)], OK, { "x-large": "v".repeat(12_000) }],
  ["a path of another world", "/%00/ü?".replace("ü", "~"), [envelope(HI)], UNIMPLEMENTED],
];

for (const [name, path, pieces, status, headers = {}] of MESSAGES) {
  Deno.test(`${name}: status ${status}`, { permissions }, async () => {
    await using server = await startEchoServer();
    const answer = await rawCall(addressOf(server), path, pieces, { headers });
    assertEquals([answer.http, answer.status], [200, status], answer.message);
    await assertServes(addressOf(server));
  });
}

Deno.test("another content type gets 415, another method 405", { permissions }, async () => {
  await using server = await startEchoServer();
  const call = (headers: Record<string, string>) =>
    rawCall(addressOf(server), START, [envelope(HI)], { headers });
  assertEquals((await call({ "content-type": "application/json" })).http, 415);
  assertEquals((await call({ ":method": "PUT" })).http, 405);
});

Deno.test("a handler's answer to half an upload stops the rest", { permissions }, async () => {
  await using server = await startEchoServer({}, {
    consumed: () => Promise.reject(new TypeError("no more")),
  });
  using raw = await RawConnection.open(addressOf(server));
  await raw.send(frame(HEADERS, END_HEADERS, 1, callHeaders(WRITE_FILE)));
  await raw.send(frame(DATA, 0, 1, envelope(Uint8Array.of(0x12, 1, 1))));
  let ended = false, reset = false;
  while (!ended || !reset) {
    const next = await raw.receive();
    assert(next !== undefined, "closed");
    if (next.stream !== 1) continue;
    if ((next.flags & END_STREAM) !== 0 && next.type === HEADERS) ended = true;
    if (next.type === RST_STREAM) reset = true;
  }
});
