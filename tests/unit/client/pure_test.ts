// The parts of the client that only compute.
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { parseAddress } from "../../../src/client/address.ts";
import { toReadableStream } from "../../../src/client/byte_stream.ts";
import { AteenvError } from "../../../src/client/error.ts";
import { Retry, type RetryPorts } from "../../../src/client/retry.ts";
import { toPieces, toWriteRequests } from "../../../src/client/upload.ts";
import { MAX_PIECE_BYTES } from "../../../src/limits.ts";

const PURE = { permissions: "none" } as const;

Deno.test("addresses", PURE, () => {
  const view = (text: string, tls?: boolean) => {
    const { display, target, tls: isTls, http } = parseAddress(text, tls);
    return [display, target, isTls, http];
  };
  const at = (host: string, port: number) => ({ host, port });
  assertEquals(view("h:1"), ["h:1", "dns:h:1", false, at("h", 1)]);
  assertEquals(view("10.0.0.1"), [
    "10.0.0.1:8080",
    "dns:10.0.0.1:8080",
    false,
    at("10.0.0.1", 8080),
  ]);
  assertEquals(view("[::1]:9"), ["[::1]:9", "dns:[::1]:9", false, at("::1", 9)]);
  assertEquals(view("http://h:1/"), ["h:1", "dns:h:1", false, at("h", 1)]);
  assertEquals(view("https://h"), ["h:443", "dns:h:443", true, at("h", 443)]);
  assertEquals(view("h:1", true), ["h:1", "dns:h:1", true, at("h", 1)]);
  const socket = ["unix:/a b", "unix:/a b", false, { socketPath: "/a b" }];
  assertEquals(view("unix:/a b"), socket);
  assertEquals(view("unix:///a b"), socket);
  for (
    const text of ["", "h:0", "h:65536", "h:x", "a b", "ftp://h", "unix:a", "http://h/path", "::1"]
  ) {
    const error = assertThrows(() => parseAddress(text), AteenvError, JSON.stringify(text));
    assertEquals(error.kind, "invalid-argument");
  }
  assertThrows(() => parseAddress("http://h", true), AteenvError, "contradict");
});

/** Time that passes only in sleep(), and chance that is always the same. */
function fakePorts(chance: number): RetryPorts & { readonly delays: number[] } {
  let now = 0;
  const delays: number[] = [];
  return {
    delays,
    nowMs: () => now,
    random: () => chance,
    sleep(delayMs) {
      delays.push(delayMs);
      now += delayMs;
      return Promise.resolve();
    },
  };
}

const POLICY = { initialDelayMs: 100, maxDelayMs: 1_000, giveUpAfterMs: 5_000 };
const unavailable = new AteenvError("unavailable", "gone");

Deno.test("pauses double up to the longest, between half and all of it", PURE, async () => {
  for (const [chance, factor] of [[0, 0.5], [1, 1]] as const) {
    const ports = fakePorts(chance);
    const retry = new Retry(POLICY, ports);
    for (let count = 0; count < 6; count++) await retry.pauseAfter(unavailable, undefined);
    assertEquals(ports.delays, [100, 200, 400, 800, 1_000, 1_000].map((delay) => delay * factor));
  }
});

Deno.test("without progress there is an end, with progress there is none", PURE, async () => {
  const ports = fakePorts(1);
  const retry = new Retry(POLICY, ports);
  const error = await assertRejects(async () => {
    for (;;) await retry.pauseAfter(unavailable, undefined);
  }, AteenvError);
  assert(error === unavailable);
  assertEquals(ports.delays.reduce((sum, delay) => sum + delay, 0), POLICY.giveUpAfterMs);
  for (let count = 0; count < 1_000; count++) {
    retry.progress();
    await retry.pauseAfter(unavailable, undefined);
  }
});

Deno.test(
  "an outage is the second failure in a row, told once, with the time that is left",
  PURE,
  async () => {
    const ports = fakePorts(1);
    const told: number[] = [];
    const retry = new Retry({ ...POLICY, onOutage: (_, leftMs) => void told.push(leftMs) }, ports);
    await retry.pauseAfter(unavailable, undefined);
    retry.progress();
    for (let count = 0; count < 4; count++) await retry.pauseAfter(unavailable, undefined);
    // After a first pause of 100 ms.
    assertEquals(told, [POLICY.giveUpAfterMs - 100]);
  },
);

Deno.test(
  "no retry: for 0, for definite kinds, for foreign errors, after an abort",
  PURE,
  async () => {
    const never = new Retry({ ...POLICY, giveUpAfterMs: 0 }, fakePorts(0));
    await assertRejects(() => never.pauseAfter(unavailable, undefined), AteenvError, "gone");
    const retry = new Retry(POLICY, fakePorts(0));
    for (const kind of ["not-found", "out-of-range", "outcome-unknown", "closed"] as const) {
      await assertRejects(
        () => retry.pauseAfter(new AteenvError(kind, kind), undefined),
        AteenvError,
      );
    }
    await assertRejects(() => retry.pauseAfter(new TypeError("bug"), undefined), TypeError, "bug");
    const error = await assertRejects(
      () => retry.pauseAfter(unavailable, AbortSignal.abort()),
      AteenvError,
    );
    assertEquals(error.kind, "cancelled");
  },
);

async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of source) items.push(item);
  return items;
}

Deno.test(
  "pieces: small chunks are joined, large ones are cut, nothing is lost",
  PURE,
  async () => {
    const chunks = [0, 1, 100, 70_000, 0, MAX_PIECE_BYTES * 2 + 5, 10, 20].map((length, index) =>
      new Uint8Array(length).fill(index)
    );
    const pieces = await collect(toPieces(ReadableStream.from(chunks)));
    assertEquals(pieces.map((piece) => piece.length), [
      70_101,
      MAX_PIECE_BYTES,
      MAX_PIECE_BYTES,
      5,
      30,
    ]);
    const join = (parts: Uint8Array[]) => new Blob(parts as BlobPart[]).bytes();
    assertEquals(await join(pieces), await join(chunks));
  },
);

Deno.test("pieces: a source that uses its buffer again does no harm", PURE, async () => {
  const buffer = new Uint8Array(4);
  const source = async function* () {
    for (let value = 1; value <= 3; value++) {
      buffer.fill(value);
      yield await Promise.resolve(buffer);
    }
  };
  const pieces = await collect(toPieces(source()));
  assertEquals(pieces.map((piece) => [...piece]), [[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]]);
});

Deno.test(
  "messages of an upload: path and mode come first, for an empty file too",
  PURE,
  async () => {
    const of = async (...sizes: number[]) =>
      (await collect(toWriteRequests(
        "p",
        0o644,
        ReadableStream.from(sizes.map((size) => new Uint8Array(size))),
      ))).map(({ path, mode, chunk }) => [path, mode, chunk.length]);
    assertEquals(await of(), [["p", 0o644, 0]]);
    assertEquals(await of(3, 4), [["p", 0o644, 3], ["", 0, 4]]);
  },
);

Deno.test("a ReadableStream opens nothing before it is read", PURE, async () => {
  let opened = 0;
  const stream = toReadableStream(async function* () {
    opened += 1;
    yield await Promise.resolve(new Uint8Array([1]));
  });
  await Promise.resolve();
  assertEquals(opened, 0);
  assertEquals((await collect(stream)).length, 1);
  assertEquals(opened, 1);
});
