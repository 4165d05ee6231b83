// Connections that end badly: peers that vanish, descriptors that run out, half-closed sockets.
import { create, toBinary } from "@bufbuild/protobuf";
import { assert, assertEquals } from "@std/assert";
import { ReadFileRequestSchema } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { addressOf, EchoClient } from "../helpers/echo_client.ts";
import { startEchoProcess } from "../helpers/echo_process.ts";
import { startEchoServer } from "../helpers/echo_server.ts";
import {
  callHeaders,
  DATA,
  END_HEADERS,
  END_STREAM,
  envelope,
  frame,
  GOAWAY,
  HEADERS,
  PREFACE,
  RawConnection,
  SETTINGS,
} from "../helpers/raw_http2.ts";

/** grpc-js reads variables and the kernel's name. */
const permissions = {
  net: ["127.0.0.1"],
  env: true,
  sys: true,
  read: true,
  run: true,
} as const satisfies Deno.PermissionOptions;

const KEEPALIVE = { keepaliveMs: 100, keepaliveTimeoutMs: 100 };

async function metric(address: string, name: string): Promise<number> {
  const text = await (await fetch(`http://${address}/metrics`)).text();
  return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
}

Deno.test(
  "a peer that answers no ping is gone, and its call with it",
  { permissions },
  async () => {
    const { promise: aborted, resolve } = Promise.withResolvers<string>();
    await using server = await startEchoServer({ limits: KEEPALIVE }, {
      aborted: (name) => resolve(name),
    });
    using raw = await RawConnection.open(addressOf(server));
    await raw.send(
      frame(HEADERS, END_HEADERS, 1, callHeaders("/ateenv.v1alpha.FileSystemService/WriteFile")),
    );
    assertEquals(await aborted, "writeFile");
    await raw.untilClosed();
    assertEquals(await metric(addressOf(server), "ateenv_open_streams"), 0);
  },
);

Deno.test(
  "a peer that vanished in the middle of a download is gone too",
  { permissions },
  async () => {
    const { promise: aborted, resolve } = Promise.withResolvers<string>();
    await using server = await startEchoServer({ limits: KEEPALIVE }, {
      aborted: (name) => resolve(name),
    });
    using raw = await RawConnection.open(addressOf(server), false);
    await raw.send(PREFACE);
    // The largest windows, so that the socket's buffers fill, and not a byte is read.
    await raw.send(frame(SETTINGS, 0, 0, Uint8Array.of(0, 4, 0x7f, 255, 255, 255)));
    await raw.send(frame(8, 0, 0, Uint8Array.of(0x7f, 0, 0, 0)));
    await raw.send(
      frame(HEADERS, END_HEADERS, 1, callHeaders("/ateenv.v1alpha.FileSystemService/ReadFile")),
    );
    const request = toBinary(
      ReadFileRequestSchema,
      create(ReadFileRequestSchema, { path: "5000000000" }),
    );
    await raw.send(frame(DATA, END_STREAM, 1, envelope(request)));
    assertEquals(await aborted, "readFile");
    assertEquals(await metric(addressOf(server), "ateenv_open_streams"), 0);
  },
);

Deno.test("a client that answers pings stays, however quiet", { permissions }, async () => {
  await using server = await startEchoServer({ limits: KEEPALIVE });
  using client = new EchoClient(addressOf(server));
  assertEquals((await client.kill({ deadline: Date.now() + 1_000 })).code, 4);
  assertEquals((await client.get()).code, 0);
});

Deno.test("a connection without calls is sent away in time, one with a call is not", {
  permissions,
}, async () => {
  const { promise: started, resolve } = Promise.withResolvers<void>();
  let ended = false;
  await using server = await startEchoServer({ limits: { idleTimeoutMs: 200 } }, {
    started: () => resolve(),
    aborted: () => ended = true,
  });
  using busy = new EchoClient(addressOf(server));
  const call = busy.kill();
  await started;
  // Younger than the call, so that the call has been quiet for longer when this one goes.
  using idle = await RawConnection.open(addressOf(server));
  assert((await idle.untilClosed()).includes(GOAWAY));
  assertEquals(ended, false);
  call.cancel();
  assertEquals((await call).code, 1);
});

Deno.test("half-closed connections do not stay", { permissions }, async () => {
  await using server = await startEchoServer();
  const address = addressOf(server);
  for (let round = 0; round < 3; round++) {
    await Promise.all(Array.from({ length: 50 }, async (_, i) => {
      using raw = await RawConnection.open(address, i % 2 === 0);
      if (i % 4 === 0) {
        await raw.send(
          frame(HEADERS, END_HEADERS, 1, callHeaders("/ateenv.v1alpha.ProcessService/KillProcess")),
        );
      }
      await raw.conn.closeWrite();
      await raw.untilClosed();
    }));
  }
  assertEquals(await metric(address, "ateenv_open_streams"), 0);
  assert(await metric(address, "ateenv_open_connections") <= 2);
});

Deno.test("a connection cut in the middle of a frame is nothing", { permissions }, async () => {
  await using server = await startEchoServer();
  const whole = new Uint8Array([
    ...PREFACE,
    ...frame(SETTINGS, 0, 0),
    ...frame(HEADERS, END_HEADERS, 1, callHeaders("/ateenv.v1alpha.ProcessService/GetProcess")),
    ...frame(DATA, END_STREAM, 1, envelope(new Uint8Array())),
  ]);
  for (let length = 1; length < whole.length; length += 7) {
    using raw = await RawConnection.open(addressOf(server), false);
    await raw.send(whole.subarray(0, length));
  }
  using client = new EchoClient(addressOf(server));
  assertEquals((await client.get()).code, 0);
});

Deno.test("regression: accepting goes on after descriptors ran out", { permissions }, async () => {
  await using server = await startEchoProcess({ maxDescriptors: 64 });
  const port = Number(server.address);
  const conns: Deno.Conn[] = [];
  try {
    // The backlog takes what the server cannot accept.
    for (let i = 0; i < 100; i++) conns.push(await Deno.connect({ hostname: "127.0.0.1", port }));
  } finally {
    for (const conn of conns) conn.close();
  }
  using client = new EchoClient(`127.0.0.1:${port}`);
  assertEquals((await client.get()).code, 0);
  assert(server.alive());
});
