// The client against an agent in memory whose calls fail on demand: what is made again, what never is.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { ProcessStatus } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { AteenvError, connect, type ConnectOptions } from "../../src/mod.ts";
import { type FakeAgent, startFakeAgent } from "../helpers/fake_agent.ts";
import { startFaultProxy } from "../helpers/fault_proxy.ts";

const FAST: ConnectOptions = {
  retry: { initialDelayMs: 1, maxDelayMs: 20, giveUpAfterMs: 10_000 },
};
const BRIEF: ConnectOptions = { retry: { initialDelayMs: 1, maxDelayMs: 5, giveUpAfterMs: 50 } };

function randomBytes(count: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(count);
  for (let offset = 0; offset < count; offset += 65_536) {
    crypto.getRandomValues(bytes.subarray(offset, Math.min(count, offset + 65_536)));
  }
  return bytes;
}

function addFinished(agent: FakeAgent, id: string, stdout: Uint8Array, stderr = new Uint8Array()) {
  agent.processes.set(id, { stdout, stderr, status: ProcessStatus.COMPLETED, exitCode: 0 });
}

async function collect(pieces: AsyncIterable<{ source: string; data: Uint8Array }>) {
  const parts: Record<string, Uint8Array[]> = { stdout: [], stderr: [] };
  for await (const { source, data } of pieces) parts[source]!.push(data);
  const join = async (list: Uint8Array[]) =>
    new Uint8Array(await new Blob(list as BlobPart[]).arrayBuffer());
  return { stdout: await join(parts.stdout!), stderr: await join(parts.stderr!) };
}

Deno.test("a client starts, follows, waits, kills, reads and writes", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address);
  const process = await client.processes.start(["echo", "hi"]);
  const { stdout } = await collect(process.output());
  assertEquals(new TextDecoder().decode(stdout), "echo hi\n");
  assertEquals((await process.wait()).exitCode, 0);
  assertEquals(await process.kill(), 0);
  assertEquals(await client.files.write("a", "content"), 7);
  assertEquals(await client.files.readText("a"), "content");
  const error = await assertRejects(() => client.files.readText("b"), AteenvError, "not found");
  assertEquals(error.kind, "not-found");
});

Deno.test("output goes on at its offset when each stream is cut, whatever the status says", async () => {
  await using agent = await startFakeAgent();
  const [stdout, stderr] = [randomBytes(50_000), randomBytes(20_000)];
  addFinished(agent, "p", stdout, stderr);
  const codes = [status.UNAVAILABLE, status.CANCELLED, status.INTERNAL, status.UNKNOWN];
  agent.fault = (method, count) =>
    method === "streamProcessOutputs" && count <= 12
      ? { code: codes[count % codes.length]!, afterBytes: 5_000 }
      : undefined;
  await using client = await connect(agent.address, FAST);
  const got = await collect(client.processes.get("p").output());
  assertEquals(got, { stdout, stderr });
  assert(agent.calls.get("streamProcessOutputs")! > 10);
});

Deno.test("a stream that is cut without progress is given up, with the last error", async () => {
  await using agent = await startFakeAgent();
  addFinished(agent, "p", randomBytes(10));
  agent.fault = (method) =>
    method === "streamProcessOutputs"
      ? { code: status.UNAVAILABLE, details: "nothing works" }
      : undefined;
  await using client = await connect(agent.address, BRIEF);
  const error = await assertRejects(
    () => collect(client.processes.get("p").output()),
    AteenvError,
    "nothing works",
  );
  assertEquals(error.kind, "unavailable");
});

Deno.test("an error that may be the agent's answer is tried three times", async () => {
  await using agent = await startFakeAgent();
  agent.fault = (method) => method === "getProcess" ? { code: status.INTERNAL } : undefined;
  await using client = await connect(agent.address, FAST);
  const error = await assertRejects(() => client.processes.get("p").status(), AteenvError);
  assertEquals(error.kind, "internal");
  assertEquals(agent.calls.get("getProcess"), 3);
});

Deno.test("a kill that something survived is not tried again: the agent says so itself", async () => {
  await using agent = await startFakeAgent();
  agent.fault = (method) =>
    method === "killProcess"
      ? { code: status.DEADLINE_EXCEEDED, trailers: { "ateenv-version": "9.9.9" } }
      : undefined;
  await using client = await connect(agent.address, FAST);
  const error = await assertRejects(() => client.processes.get("p").kill(), AteenvError);
  assertEquals(error.kind, "deadline-exceeded");
  assertEquals(agent.calls.get("killProcess"), 1);
});

Deno.test("a definite answer is not tried again", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  for (
    const [code, kind] of [
      [status.NOT_FOUND, "not-found"],
      [status.PERMISSION_DENIED, "permission-denied"],
      [status.UNAUTHENTICATED, "unauthenticated"],
      [status.RESOURCE_EXHAUSTED, "resource-exhausted"],
    ] as const
  ) {
    agent.calls.clear();
    agent.fault = () => ({ code });
    const error = await assertRejects(() => client.processes.get("p").status(), AteenvError);
    assertEquals(error.kind, kind);
    assertEquals(agent.calls.get("getProcess"), 1);
  }
});

Deno.test("first offsets of an overtaken reader are in the details", async () => {
  await using agent = await startFakeAgent();
  addFinished(agent, "p", randomBytes(10));
  agent.fault = (method) =>
    method === "streamProcessOutputs"
      ? {
        code: status.OUT_OF_RANGE,
        trailers: { "ateenv-first-stdout-offset": "4096", "ateenv-first-stderr-offset": "0" },
      }
      : undefined;
  await using client = await connect(agent.address, FAST);
  const error = await assertRejects(() => collect(client.processes.get("p").output()), AteenvError);
  assertEquals(error.kind, "out-of-range");
  assertEquals(error.details, { firstStdoutOffset: 4096, firstStderrOffset: 0 });
});

Deno.test("StartProcess is never sent twice: a lost answer is outcome-unknown", async () => {
  await using agent = await startFakeAgent();
  agent.fault = (method) => method === "startProcess" ? { code: status.UNAVAILABLE } : undefined;
  await using client = await connect(agent.address, FAST);
  const error = await assertRejects(
    () => client.processes.start(["true"]),
    AteenvError,
    "may have",
  );
  assertEquals(error.kind, "outcome-unknown");
  assertEquals(agent.calls.get("startProcess"), 1);
});

Deno.test("an agent that says itself that it refuses work has started nothing", async () => {
  await using agent = await startFakeAgent();
  agent.fault = (method) =>
    method === "startProcess"
      ? { code: status.UNAVAILABLE, trailers: { "ateenv-version": "9.9.9" } }
      : undefined;
  await using client = await connect(agent.address, FAST);
  const error = await assertRejects(() => client.processes.start(["true"]), AteenvError, "refuses");
  assertEquals(error.kind, "unavailable");
  assertEquals(agent.calls.get("startProcess"), 1);
});

Deno.test("a start whose connection is cut on the way is outcome-unknown", async () => {
  await using agent = await startFakeAgent();
  await using proxy = startFaultProxy(agent.address);
  agent.gate = (method) => {
    if (method === "startProcess") proxy.cut();
    return Promise.resolve();
  };
  await using client = await connect(proxy.address, FAST);
  const error = await assertRejects(() => client.processes.start(["true"]), AteenvError);
  assertEquals(error.kind, "outcome-unknown");
  assertEquals(agent.calls.get("startProcess"), 1);
});

Deno.test("an abort while a start is under way kills what was started", async () => {
  await using agent = await startFakeAgent();
  const abort = new AbortController();
  const reached = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  agent.gate = async (method) => {
    if (method !== "startProcess") return;
    reached.resolve();
    await release.promise;
  };
  await using client = await connect(agent.address, FAST);
  const started = client.processes.start(["sleep", "1000"], { signal: abort.signal });
  await reached.promise;
  abort.abort();
  release.resolve();
  const error = await assertRejects(() => started, AteenvError);
  assertEquals(error.kind, "cancelled");
  assertEquals(agent.calls.get("killProcess"), 1);
});

Deno.test("a file that is cut is read again, and delivered once", async () => {
  await using agent = await startFakeAgent();
  const content = randomBytes(40_000);
  agent.files.set("f", content);
  agent.fault = (method, count) =>
    method === "readFile" && count <= 3
      ? { code: status.UNAVAILABLE, afterBytes: 10_000 * count }
      : undefined;
  await using client = await connect(agent.address, FAST);
  assertEquals(await client.files.readBytes("f"), content);
  assertEquals(agent.calls.get("readFile"), 4);
});

Deno.test("a file that changes while it is cut is interrupted, never mixed", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  const before = randomBytes(40_000);
  const changes: [string, Uint8Array][] = [
    ["other content", randomBytes(40_000)],
    ["one byte", Uint8Array.from(before, (byte, at) => at === 10 ? byte ^ 1 : byte)],
    ["shorter", before.slice(0, 10)],
    ["empty", new Uint8Array()],
  ];
  for (const [what, after] of changes) {
    agent.calls.clear();
    agent.files.set("f", before);
    agent.gate = (method, count) => {
      if (method === "readFile" && count === 2) agent.files.set("f", after);
      return Promise.resolve();
    };
    agent.fault = (method, count) =>
      method === "readFile" && count === 1
        ? { code: status.UNAVAILABLE, afterBytes: 10_000 }
        : undefined;
    const error = await assertRejects(() => client.files.readBytes("f"), AteenvError);
    assertEquals(error.kind, "interrupted", what);
  }
});

Deno.test("a file that only grew behind what was delivered is read whole", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  const [before, more] = [randomBytes(20_000), randomBytes(5_000)];
  const after = new Uint8Array([...before, ...more]);
  agent.files.set("f", before);
  agent.gate = (method, count) => {
    if (method === "readFile" && count === 2) agent.files.set("f", after);
    return Promise.resolve();
  };
  agent.fault = (method, count) =>
    method === "readFile" && count === 1
      ? { code: status.UNAVAILABLE, afterBytes: 10_000 }
      : undefined;
  assertEquals(await client.files.readBytes("f"), after);
});

Deno.test("an upload is sent again from what can be opened again", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  const content = randomBytes(300_000);
  let opened = 0;
  const sources = [
    content,
    () => {
      opened += 1;
      return ReadableStream.from([content.slice(0, 100_000), content.slice(100_000)]);
    },
  ];
  for (const source of sources) {
    agent.calls.clear();
    agent.fault = (method, count) =>
      method === "writeFile" && count <= 2
        ? { code: status.UNAVAILABLE, afterBytes: 1 }
        : undefined;
    assertEquals(await client.files.write("f", source), content.length);
    assertEquals(agent.files.get("f"), content);
    assertEquals(agent.calls.get("writeFile"), 3);
  }
  assertEquals(opened, 3);
});

Deno.test("an upload from a stream is not sent again once something was taken from it", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  agent.fault = (method) =>
    method === "writeFile" ? { code: status.UNAVAILABLE, afterBytes: 1 } : undefined;
  const error = await assertRejects(
    () => client.files.write("f", ReadableStream.from([randomBytes(200_000)])),
    AteenvError,
    "only once",
  );
  assertEquals(error.kind, "outcome-unknown");
  assertEquals(agent.calls.get("writeFile"), 1);
});

Deno.test("a source that throws ends the upload with its error as the cause", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  const broken = new Error("disk on fire");
  const error = await assertRejects(
    () =>
      client.files.write(
        "f",
        async function* () {
          yield randomBytes(100_000);
          await Promise.resolve();
          throw broken;
        }(),
      ),
    AteenvError,
    "disk on fire",
  );
  assertEquals(error.kind, "source-failed");
  assert(error.cause === broken);
  assertEquals(agent.files.has("f"), false);
});

Deno.test("an upload that the agent refuses stops a source that never ends", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  agent.fault = (method) =>
    method === "writeFile" ? { code: status.PERMISSION_DENIED, afterBytes: 200_000 } : undefined;
  const stopped = Promise.withResolvers<void>();
  const error = await assertRejects(
    () =>
      client.files.write(
        "f",
        async function* () {
          try {
            for (;;) yield await Promise.resolve(new Uint8Array(100_000));
          } finally {
            stopped.resolve();
          }
        }(),
      ),
    AteenvError,
  );
  assertEquals(error.kind, "permission-denied");
  await stopped.promise;
});

Deno.test("an upload that the agent refuses does not wait for a source that hangs", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  agent.fault = (method) =>
    method === "writeFile" ? { code: status.PERMISSION_DENIED, afterBytes: 1 } : undefined;
  const hang = Promise.withResolvers<void>();
  const stream = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array(100_000)),
    pull: () => hang.promise,
  });
  const error = await assertRejects(() => client.files.write("f", stream), AteenvError);
  assertEquals(error.kind, "permission-denied");
  hang.resolve();
});

Deno.test("closing the client ends what is under way with closed, and leaves nothing", async () => {
  await using agent = await startFakeAgent();
  const reached = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  agent.gate = async (method) => {
    if (method !== "getProcess") return;
    reached.resolve();
    await release.promise;
  };
  const client = await connect(agent.address, FAST);
  const waiting = client.processes.get("p").status();
  const failed = assertRejects(() => waiting, AteenvError, "closed");
  await reached.promise;
  await client.close();
  assertEquals((await failed).kind, "closed");
  release.resolve();
  const error = await assertRejects(() => client.files.readText("f"), AteenvError);
  assertEquals(error.kind, "closed");
  await client.close();
});

Deno.test("an aborted signal is cancelled, one that timed out deadline-exceeded", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  const release = Promise.withResolvers<void>();
  agent.gate = (method) => method === "getProcess" ? release.promise : Promise.resolve();
  const process = client.processes.get("p");
  const abort = new AbortController();
  const reason = new Error("enough");
  const aborted = process.status({ signal: abort.signal });
  abort.abort(reason);
  const error = await assertRejects(() => aborted, AteenvError);
  assertEquals(error.kind, "cancelled");
  assert(error.cause === reason);
  const late = await assertRejects(
    () => process.status({ signal: AbortSignal.timeout(10) }),
    AteenvError,
  );
  assertEquals(late.kind, "deadline-exceeded");
  release.resolve();
});

Deno.test("cancelling a ReadableStream ends its call", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address, FAST);
  agent.files.set("f", randomBytes(3_000_000));
  const reader = client.files.read("f").getReader();
  assert((await reader.read()).value!.length > 0);
  await reader.cancel();
  addFinished(agent, "p", randomBytes(100), randomBytes(50));
  const process = client.processes.get("p");
  const [stdout, stderr] = await Promise.all([
    new Response(process.stdout).arrayBuffer(),
    new Response(process.stderr).arrayBuffer(),
  ]);
  assertEquals([stdout.byteLength, stderr.byteLength], [100, 50]);
});

Deno.test("the token goes with every call, from a file too", async () => {
  await using agent = await startFakeAgent();
  const tokenFile = await Deno.makeTempFile();
  await Deno.writeTextFile(tokenFile, "secret\n");
  await using client = await connect(agent.address, { tokenFile });
  await client.files.write("f", "x");
  assertEquals(agent.lastAuthorization, "Bearer secret");
  await Deno.remove(tokenFile);
  const error = await assertRejects(() => connect(agent.address, { tokenFile }), AteenvError);
  assertEquals(error.kind, "invalid-argument");
});

Deno.test("a dead connection is noticed by its pings, and a call goes on over a new one", async () => {
  await using agent = await startFakeAgent();
  await using proxy = startFaultProxy(agent.address);
  await using client = await connect(proxy.address, {
    ...FAST,
    keepaliveMs: 100,
    keepaliveTimeoutMs: 100,
  });
  addFinished(agent, "p", randomBytes(10));
  const process = client.processes.get("p");
  assertEquals((await process.status()).status, "completed");
  proxy.freeze();
  assertEquals((await process.status()).status, "completed");
  assertEquals(proxy.connections, 2);
});

Deno.test("a follow ends with OK only for a process that has finished", async () => {
  await using agent = await startFakeAgent();
  // As a proxy does that ends cut streams well.
  agent.processes.set("p", {
    stdout: randomBytes(1),
    stderr: randomBytes(1),
    status: ProcessStatus.RUNNING,
    exitCode: 0,
  });
  agent.gate = (method, count) => {
    if (method === "getProcess" && count === 3) {
      agent.processes.get("p")!.status = ProcessStatus.FAILED;
      agent.processes.get("p")!.exitCode = 3;
    }
    return Promise.resolve();
  };
  await using client = await connect(agent.address, FAST);
  assertEquals((await client.processes.get("p").wait()).exitCode, 3);
});

Deno.test("nobody there: an error that names the address, at once", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const address = `127.0.0.1:${listener.addr.port}`;
  listener.close();
  const error = await assertRejects(() => connect(address), AteenvError, address);
  assertEquals(error.kind, "unavailable");
  assert(error.message.includes("ECONNREFUSED"), error.message);
});

Deno.test("somebody there who never answers: an error that names the address, in time", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const accepted = listener.accept();
  const address = `127.0.0.1:${listener.addr.port}`;
  const error = await assertRejects(
    () => connect(address, { connectTimeoutMs: 400 }),
    AteenvError,
    address,
  );
  assertEquals(error.kind, "unavailable");
  (await accepted).close();
});
