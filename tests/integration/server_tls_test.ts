import { Buffer } from "node:buffer";
import { assertEquals, assertRejects } from "@std/assert";
import { credentials } from "@grpc/grpc-js";
import { type Clock, systemClock } from "../../src/clock.ts";
import { AgentError } from "../../src/errors.ts";
import { addressOf, EchoClient } from "../helpers/echo_client.ts";
import { startEchoServer } from "../helpers/echo_server.ts";

const FIXTURES = new URL("../fixtures/tls/", import.meta.url).pathname;

/** grpc-js reads variables and the kernel's name; curl stands for a probe. */
const permissions = {
  net: ["127.0.0.1"],
  env: true,
  sys: true,
  read: true,
  write: true,
  run: true,
} as const satisfies Deno.PermissionOptions;

function pem(name: string): Buffer {
  return Buffer.from(Deno.readFileSync(FIXTURES + name));
}

function connect(address: string, certificate?: string): EchoClient {
  return new EchoClient(
    address,
    certificate === undefined ? credentials.createSsl(pem("server-ca.pem")) : credentials.createSsl(
      pem("server-ca.pem"),
      pem(`${certificate}.key`),
      pem(`${certificate}.pem`),
    ),
  );
}

const SERVER = { certFile: FIXTURES + "server.pem", keyFile: FIXTURES + "server.key" };

async function curl(...args: string[]): Promise<string> {
  const { stdout } = await new Deno.Command("curl", {
    args: ["--silent", "--max-time", "10", "--cacert", FIXTURES + "server-ca.pem", ...args],
    stderr: "null",
  }).output();
  return new TextDecoder().decode(stdout);
}

Deno.test(
  "calls and probes go over TLS on one port, plain ones do not",
  { permissions },
  async () => {
    await using server = await startEchoServer({ tls: SERVER });
    const address = addressOf(server);
    using client = connect(address);
    assertEquals((await client.start("hello")).answer.processId, "hello");
    let bytes = 0;
    for await (const { data } of client.read(10_000_000)) bytes += data.length;
    assertEquals(bytes, 10_000_000);
    const { call, send, outcome } = client.write();
    for (let i = 0; i < 5; i++) await send(new Uint8Array(1_000_000));
    call.end();
    assertEquals((await outcome).answer.bytesWritten, 5_000_000n);
    assertEquals(await curl("--http1.1", `https://${address}/readyz`), "ok");
    assertEquals(await curl("--http2", `https://${address}/readyz`), "ok");
    assertEquals(await curl(`http://${address}/readyz`), "");
  },
);

Deno.test(
  "mtls asks for a certificate of the client CA, but not of probes",
  { permissions },
  async () => {
    await using server = await startEchoServer({
      auth: { mode: "mtls" },
      tls: { ...SERVER, clientCaFile: FIXTURES + "client-ca.pem" },
    });
    const address = addressOf(server);
    using client = connect(address, "client");
    assertEquals((await client.get()).code, 0);
    using stranger = connect(address, "stranger");
    assertEquals((await stranger.get()).message, "a client certificate is required");
    using expired = connect(address, "expired");
    assertEquals((await expired.get()).message, "a client certificate is required");
    using nobody = connect(address);
    assertEquals((await nobody.get()).code, 16);
    assertEquals((await nobody.check()).answer.status, 1);
    assertEquals(await curl(`https://${address}/readyz`), "ok");
  },
);

/** Every look at it is a second later than the one before: files are looked at for every connection. */
function hastyClock(): Clock {
  let nowMs = 0;
  return { ...systemClock, nowMs: () => nowMs += 1_000 };
}

Deno.test("replaced certificates serve the next connection, broken ones do not", {
  permissions,
}, async () => {
  const dir = await Deno.makeTempDir();
  try {
    const files = { certFile: `${dir}/cert`, keyFile: `${dir}/key` };
    const install = async (name: string) => {
      await Deno.copyFile(`${FIXTURES}${name}.pem`, files.certFile);
      await Deno.copyFile(`${FIXTURES}${name}.key`, files.keyFile);
    };
    await install("server");
    await using server = await startEchoServer({ tls: files, clock: hastyClock() });
    const subject = async () =>
      /subject: CN=([\w-]+)/.exec(
        await curl("-v", "--stderr", "-", `https://${addressOf(server)}/readyz`),
      )?.[1];
    assertEquals(await subject(), "server");
    await install("server-2");
    assertEquals(await subject(), "server-2");
    // A certificate without its key: the old pair stays.
    await Deno.copyFile(`${FIXTURES}server.pem`, files.certFile);
    assertEquals(await subject(), "server-2");
    await Deno.remove(files.certFile);
    assertEquals(await subject(), "server-2");
    await install("server");
    assertEquals(await subject(), "server");
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("a replaced client CA decides about the next connection, those that stand stay", {
  permissions,
}, async () => {
  const dir = await Deno.makeTempDir();
  try {
    const clientCaFile = `${dir}/ca`;
    await Deno.copyFile(`${FIXTURES}client-ca.pem`, clientCaFile);
    await using server = await startEchoServer({
      auth: { mode: "mtls" },
      tls: { ...SERVER, clientCaFile },
      clock: hastyClock(),
    });
    const codeOf = async (certificate: string) => {
      using client = connect(addressOf(server), certificate);
      return (await client.get()).code;
    };
    using early = connect(addressOf(server), "client");
    assertEquals((await early.get()).code, 0);
    assertEquals(await codeOf("stranger"), 16);
    await Deno.copyFile(`${FIXTURES}stranger-ca.pem`, clientCaFile);
    assertEquals(await codeOf("client"), 16);
    assertEquals(await codeOf("stranger"), 0);
    assertEquals((await early.get()).code, 0);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("unusable TLS files are refused at the start", { permissions }, async () => {
  const bad = [
    { ...SERVER, keyFile: FIXTURES + "stranger.key" },
    { ...SERVER, certFile: FIXTURES + "missing.pem" },
    { ...SERVER, certFile: FIXTURES + "server.key" },
    { ...SERVER, clientCaFile: FIXTURES + "make.sh" },
  ];
  for (const tls of bad) {
    await assertRejects(() => startEchoServer({ tls }), AgentError, "cannot use the TLS");
  }
});

Deno.test("a handshake that is not finished is closed in time", { permissions }, async () => {
  await using server = await startEchoServer({ tls: SERVER, limits: { openingTimeoutMs: 100 } });
  const [hostname = "", port] = addressOf(server).split(":");
  for (const bytes of [[], [0x16], [0x16, 3, 1, 0, 200, 1], [...Array(300).fill(0x16)]]) {
    using conn = await Deno.connect({ hostname, port: Number(port) });
    await conn.write(Uint8Array.from(bytes));
    const buffer = new Uint8Array(1_000);
    while (await conn.read(buffer).catch(() => null) !== null);
  }
  using client = connect(addressOf(server));
  assertEquals((await client.get()).code, 0);
});
