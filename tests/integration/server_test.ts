import { Buffer } from "node:buffer";
import { assertEquals, assertRejects } from "@std/assert";
import { create } from "@bufbuild/protobuf";
import { credentials, makeGenericClientConstructor, Metadata } from "@grpc/grpc-js";
import { ServerReflectionRequestSchema } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import {
  reflectionAlphaServiceDefinition,
  reflectionServiceDefinition,
} from "../../src/wire/definitions.ts";
import { addressOf, EchoClient } from "../helpers/echo_client.ts";
import { startEchoProcess } from "../helpers/echo_process.ts";
import { memoryLog, startEchoServer } from "../helpers/echo_server.ts";

/** grpc-js reads variables and the kernel's name; curl stands for foreign HTTP clients. */
const permissions = {
  net: ["127.0.0.1"],
  env: true,
  sys: true,
  read: true,
  write: true,
  run: true,
} as const satisfies Deno.PermissionOptions;

async function curl(...args: string[]): Promise<{ head: string; body: string }> {
  const { stdout } = await new Deno.Command("curl", {
    args: ["--silent", "--include", "--max-time", "10", ...args],
    stderr: "null",
  }).output();
  const [head = "", body = ""] = new TextDecoder().decode(stdout).split("\r\n\r\n");
  return { head, body };
}

Deno.test(
  "answers, errors and trailers arrive, each with the version",
  { permissions },
  async () => {
    const lines: string[] = [];
    await using server = await startEchoServer({ log: memoryLog(lines) });
    using client = new EchoClient(addressOf(server));

    const hello = await client.start("hello");
    assertEquals([hello.code, hello.answer.processId], [0, "hello"]);
    assertEquals(hello.metadata["ateenv-version"], "1.2.3");

    const refused = await client.start("refuse");
    assertEquals([refused.code, refused.message], [11, "offset 3 is gone, 100% ü"]);
    assertEquals(refused.metadata["ateenv-first-stdout-offset"], "7");
    assertEquals(refused.metadata["ateenv-version"], "1.2.3");

    // Half a surrogate pair cannot be sent; it must not break the answer.
    assertEquals((await client.start("lone")).message, "half \ufffd of a pair");

    const thrown = await client.start("throw");
    assertEquals([thrown.code, thrown.message], [13, "internal error"]);
    const errors = lines.filter((line) => line.includes('"error"'));
    assertEquals(errors.length, 1, lines.join(""));
    assertEquals(errors[0]!.includes("TypeError: a secret detail"), true);

    const unknown = await client.unknown();
    assertEquals([unknown.code, unknown.metadata["ateenv-version"]], [12, "1.2.3"]);
  },
);

Deno.test("every finished call is one line and one count", { permissions }, async () => {
  const lines: string[] = [];
  await using server = await startEchoServer({ log: memoryLog(lines) });
  using client = new EchoClient(addressOf(server));
  const metadata = new Metadata();
  metadata.set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  metadata.set("x-env-id", "e");
  metadata.set("data-bin", Buffer.of(0, 255, 10));
  await client.start("hello", {}, metadata);
  await client.get();
  const calls = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "call finished");
  assertEquals(calls.length >= 1, true, "the line of a call comes before the next call's answer");
  const { method, code, bytesIn, bytesOut, traceparent, durationMs, peer } = calls[0];
  assertEquals({ method, code, bytesIn, bytesOut, traceparent }, {
    method: "/ateenv.v1alpha.ProcessService/StartProcess",
    code: "OK",
    bytesIn: 12,
    bytesOut: 12,
    traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
  });
  assertEquals([typeof durationMs, /^127\.0\.0\.1:\d+$/.test(peer)], ["number", true]);
  const { head, body } = await curl(`http://${addressOf(server)}/metrics`);
  assertEquals(head.includes("Content-Type: text/plain; version=0.0.4"), true, head);
  assertEquals(
    body.includes(
      'ateenv_calls_total{method="/ateenv.v1alpha.ProcessService/StartProcess",code="OK"} 1',
    ),
    true,
    body,
  );
});

Deno.test("a download and an upload are whole", { permissions }, async () => {
  await using server = await startEchoServer();
  using client = new EchoClient(addressOf(server));
  let bytes = 0;
  for await (const { data } of client.read(30_000_001)) bytes += data.length;
  assertEquals(bytes, 30_000_001);
  for await (const _ of client.read(0)) throw new Error("an empty file has no message");

  const { call, send, outcome } = client.write();
  for (let i = 0; i < 20; i++) await send(new Uint8Array(1_000_000));
  call.end();
  assertEquals((await outcome).answer.bytesWritten, 20_000_000n);
});

Deno.test("messages up to the limit are taken, larger ones refused", { permissions }, async () => {
  await using server = await startEchoServer();
  using client = new EchoClient(addressOf(server));
  const fits = client.write();
  // 16 MiB with the fields around the chunk.
  await fits.send(new Uint8Array(16 * 1024 * 1024 - 8));
  fits.call.end();
  assertEquals((await fits.outcome).answer.bytesWritten, 16_777_208n);
  const tooLarge = client.write();
  tooLarge.call.on("error", () => {});
  tooLarge.send(new Uint8Array(16 * 1024 * 1024 + 1));
  assertEquals((await tooLarge.outcome).code, 8);
  assertEquals((await client.get()).code, 0);
});

Deno.test("cancel, deadline and a lost connection end the handler", { permissions }, async () => {
  const events: string[] = [];
  let wake = () => {};
  const next = async (length: number) => {
    while (events.length < length) await new Promise<void>((resolve) => wake = resolve);
  };
  const note = (event: string) => {
    events.push(event);
    wake();
  };
  await using server = await startEchoServer({}, {
    started: (name) => note(`started ${name}`),
    aborted: (_name, reason) => note(`aborted ${(reason as { kind: string }).kind}`),
    unanswered: () => note("unanswered"),
  });
  const client = new EchoClient(addressOf(server));

  const cancelled = client.kill();
  await next(1);
  cancelled.cancel();
  assertEquals((await cancelled).code, 1);
  await next(2);

  assertEquals((await client.kill({ deadline: Date.now() + 100 })).code, 4);
  await next(4);

  const waiting = client.start("wait");
  await next(5);
  client.raw.close();
  client.raw.getChannel().close();
  await using other = await Promise.resolve({
    client: new EchoClient(addressOf(server)),
    [Symbol.asyncDispose]() {
      this.client[Symbol.dispose]();
      return Promise.resolve();
    },
  });
  const gone = other.client.start("wait", { deadline: Date.now() + 100 });
  assertEquals((await gone).code, 4);
  await next(8);
  assertEquals(events.slice(0, 5), [
    "started killProcess",
    "aborted cancelled",
    "started killProcess",
    // The client's own timer and ours race; both end the call.
    events[3],
    "started startProcess",
  ]);
  assertEquals(/^aborted (cancelled|deadline-exceeded)$/.test(events[3]!), true, events[3]);
  assertEquals(events.slice(5).filter((event) => event === "unanswered").length >= 1, true);
  await server.close(0);
  assertEquals((await waiting).code !== 0, true);
});

Deno.test("regression: a client may cancel thousands of calls and lose none of the others", {
  permissions,
}, async () => {
  // nghttp2 drops a connection after 1,000 cancels in a row.
  await using server = await startEchoServer();
  using client = new EchoClient(addressOf(server));
  for (let i = 0; i < 100; i++) {
    const cancelled = Array.from({ length: 30 }, () => client.kill());
    const answered = Array.from({ length: 3 }, () => client.get());
    await answered[0];
    for (const call of cancelled) call.cancel();
    assertEquals((await Promise.all(answered)).map(({ code }) => code), [0, 0, 0]);
    assertEquals(new Set((await Promise.all(cancelled)).map(({ code }) => code)), new Set([1]));
  }
});

Deno.test("an answered call is not unanswered, a failed one is", { permissions }, async () => {
  let unanswered = 0;
  await using server = await startEchoServer({}, { unanswered: () => unanswered++ });
  using client = new EchoClient(addressOf(server));
  for (let i = 0; i < 20; i++) await client.start("hello");
  await client.get();
  assertEquals(unanswered, 0);
  await client.start("refuse");
  await client.get();
  assertEquals(unanswered, 1);
});

Deno.test(
  "a client that does not read holds the producer, not the memory",
  { permissions },
  async () => {
    let produced = 0;
    await using server = await startEchoServer({}, { produced: (bytes) => produced = bytes });
    using client = new EchoClient(addressOf(server));
    const call = client.read(5_000_000_000);
    call.on("error", () => {});
    const { promise: first, resolve } = Promise.withResolvers<void>();
    call.once("data", () => {
      call.pause();
      resolve();
    });
    await first;
    // Other calls are served meanwhile, and time passes in which more could be produced.
    for (let i = 0; i < 200; i++) assertEquals((await client.get()).code, 0);
    assertEquals(produced < 32 * 1024 * 1024, true, `${produced}`);
    call.cancel();
  },
);

Deno.test(
  "a handler that does not read holds the client, not the memory",
  { permissions },
  async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    await using server = await startEchoServer({}, { consumed: () => released });
    using client = new EchoClient(addressOf(server));
    const { call, send, outcome } = client.write();
    let sent = 0;
    const sending = (async () => {
      for (let i = 0; i < 60; i++) {
        await send(new Uint8Array(1024 * 1024));
        sent++;
      }
    })();
    for (let i = 0; i < 200; i++) assertEquals((await client.get()).code, 0);
    assertEquals(sent < 32, true, `${sent}`);
    release();
    await sending;
    call.end();
    assertEquals((await outcome).answer.bytesWritten, 60n * 1024n * 1024n);
  },
);

Deno.test("plain HTTP is answered on the same port", { permissions }, async () => {
  await using server = await startEchoServer();
  const base = `http://${addressOf(server)}`;
  const ready = await curl("--header", "Host: anything", `${base}/readyz?x`);
  assertEquals(ready.body, "ok");
  assertEquals(ready.head.startsWith("HTTP/1.1 200 OK\r\nDate: "), true, ready.head);
  assertEquals(ready.head.includes("Connection: close"), true);
  assertEquals((await curl(`${base}/healthz`)).body, "ok");
  assertEquals((await curl("--head", `${base}/readyz`)).head.includes("200 OK"), true);
  assertEquals((await curl(`${base}/`)).head.startsWith("HTTP/1.1 404"), true);
  const posted = await curl("--data", "x".repeat(100_000), `${base}/readyz`);
  assertEquals(posted.head.includes("HTTP/1.1 405"), true, posted.head);
  // The same over HTTP/2, as some proxies ask.
  const h2 = await curl("--http2-prior-knowledge", `${base}/readyz`);
  assertEquals([h2.head.startsWith("HTTP/2 200"), h2.body], [true, "ok"]);
  const form = await curl("--http2-prior-knowledge", "--data", "x", `${base}/readyz`);
  assertEquals(form.head.startsWith("HTTP/2 415"), true, form.head);
});

Deno.test("without the token only health is open", { permissions }, async () => {
  const dir = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${dir}/token`, "the-token\n");
    const lines: string[] = [];
    await using server = await startEchoServer({
      auth: { mode: "token", tokenFile: `${dir}/token` },
      log: memoryLog(lines),
    });
    using client = new EchoClient(addressOf(server));
    const withToken = new Metadata();
    withToken.set("authorization", "Bearer the-token");
    const withOther = new Metadata();
    withOther.set("authorization", "Bearer the-tokem");

    const missing = await client.get();
    assertEquals([missing.code, missing.message, missing.metadata["ateenv-version"]], [
      16,
      "missing authorization: a bearer token is required",
      "1.2.3",
    ]);
    assertEquals((await client.unknown()).code, 16);
    assertEquals((await client.get(withOther)).message, "invalid bearer token");
    assertEquals((await client.get(withToken)).code, 0);
    assertEquals((await client.unknown(withToken)).code, 12);
    assertEquals((await client.check()).answer.status, 1);
    // An upload is refused before its content is taken.
    const upload = client.write();
    upload.call.on("error", () => {});
    upload.send(new Uint8Array(5_000_000));
    assertEquals((await upload.outcome).code, 16);

    const base = `http://${addressOf(server)}`;
    assertEquals((await curl(`${base}/readyz`)).body, "ok");
    assertEquals((await curl(`${base}/metrics`)).head.startsWith("HTTP/1.1 401"), true);
    const scraped = await curl("--header", "Authorization: Bearer the-token", `${base}/metrics`);
    assertEquals(scraped.body.includes('code="UNAUTHENTICATED"'), true);
    assertEquals(lines.some((line) => line.includes("the-token")), false);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("health tells of every service, and watchers of the drain", { permissions }, async () => {
  await using server = await startEchoServer();
  using client = new EchoClient(addressOf(server));
  for (const service of ["", "ateenv.v1alpha.ProcessService", "ateenv.v1alpha.FileSystemService"]) {
    assertEquals((await client.check(service)).answer.status, 1, service);
  }
  assertEquals((await client.check("no.Such")).code, 5);
  const statuses = client.watch();
  assertEquals((await statuses.next()).value, 1);
  server.beginDrain();
  assertEquals((await statuses.next()).value, 2);
  assertEquals((await statuses.next()).done, true);
  assertEquals((await client.check()).answer.status, 2);
  assertEquals(
    (await curl(`http://${addressOf(server)}/readyz`)).head.split("\r\n")[0],
    "HTTP/1.1 503 Service Unavailable",
  );
  assertEquals((await curl(`http://${addressOf(server)}/healthz`)).body, "ok");
  // Nothing new is refused by the port itself: that is the services' to say.
  assertEquals((await client.get()).code, 0);
});

Deno.test(
  "regression: a reflection call ends when its client has asked all",
  { permissions },
  async () => {
    // grpcurl waits for the end of the stream before it goes.
    await using server = await startEchoServer();
    for (const definition of [reflectionServiceDefinition, reflectionAlphaServiceDefinition]) {
      const Reflection = makeGenericClientConstructor(definition as never, "Reflection");
      // deno-lint-ignore no-explicit-any
      const client = new Reflection(addressOf(server), credentials.createInsecure()) as any;
      const call = client.serverReflectionInfo();
      call.write(create(ServerReflectionRequestSchema, {
        messageRequest: { case: "listServices", value: "" },
      }));
      const answers = call[Symbol.asyncIterator]();
      const { value } = await answers.next();
      assertEquals(value.messageResponse.value.service.length, 5);
      call.end();
      assertEquals((await answers.next()).done, true);
      client.close();
    }
  },
);

Deno.test("close lets running calls finish, within its grace", { permissions }, async () => {
  await using server = await startEchoServer();
  using client = new EchoClient(addressOf(server));
  using idle = new EchoClient(addressOf(server));
  await idle.get();
  const call = client.read(40_000_000);
  let bytes = 0;
  let closing: Promise<void> | undefined;
  for await (const { data } of call) {
    bytes += data.length;
    closing ??= server.close(20_000);
  }
  assertEquals(bytes, 40_000_000);
  await closing;
  const [hostname, port] = addressOf(server).split(":");
  await assertRejects(
    () => Deno.connect({ hostname: hostname!, port: Number(port) }),
    Deno.errors.ConnectionRefused,
  );
});

Deno.test(
  "close ends calls that do not finish when its grace is over",
  { permissions },
  async () => {
    const { promise: started, resolve } = Promise.withResolvers<void>();
    await using server = await startEchoServer({}, { started: () => resolve() });
    using client = new EchoClient(addressOf(server));
    const call = client.kill();
    await started;
    await server.close(50);
    assertEquals((await call).code !== 0, true);
  },
);

Deno.test("close waits until the handlers of aborted calls have cleaned up", {
  permissions,
}, async () => {
  const { promise: started, resolve } = Promise.withResolvers<void>();
  const { promise: aborted, resolve: abort } = Promise.withResolvers<void>();
  let cleaned = false;
  await using server = await startEchoServer({}, {
    aborted: () => abort(),
    consumed: async () => {
      resolve();
      await aborted;
      // As a removal of a temporary file takes.
      for (let i = 0; i < 10; i++) await new Promise<void>((done) => setImmediate(done));
      cleaned = true;
    },
  });
  using client = new EchoClient(addressOf(server));
  const { send, outcome } = client.write();
  await send(new Uint8Array(10));
  await started;
  await server.close(0);
  assertEquals(cleaned, true);
  assertEquals((await outcome).code !== 0, true);
});

Deno.test("a unix socket is its owner's, and replaces a dead one", { permissions }, async () => {
  const dir = await Deno.makeTempDir();
  try {
    const path = `${dir}/agent.sock`;
    // A killed agent leaves its socket behind.
    const dead = await new Deno.Command("python3", {
      args: ["-c", "import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", path],
    }).output();
    assertEquals(dead.success, true);
    {
      await using _server = await startEchoProcess({ path });
      assertEquals((await Deno.lstat(path)).mode! & 0o777, 0o600);
      const ready = await curl("--unix-socket", path, "http://any/readyz");
      assertEquals(ready.body, "ok");
      const h2 = await curl("--http2-prior-knowledge", "--unix-socket", path, "http://any/readyz");
      assertEquals(h2.body, "ok");
      await assertRejects(() => startEchoProcess({ path }), Error, "did not start");
      assertEquals((await curl("--unix-socket", path, "http://any/readyz")).body, "ok");
    }
    assertEquals([...Deno.readDirSync(dir)], []);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});
