import { assertEquals } from "@std/assert";
import { protocolOf, sniff } from "../../../src/wire/sniff.ts";
import type { Transport } from "../../../src/wire/transport.ts";

const encode = (text: string) => new TextEncoder().encode(text);
const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const CASES = [
  [PREFACE, "http2"],
  [PREFACE + "\0\0\0", "http2"],
  [PREFACE.slice(0, 23), undefined],
  ["", undefined],
  ["P", undefined],
  ["PRI * HTTP/2.0\r\n\r\nSX", "garbage"],
  ["PRI * HTTP/1.1\r\n", "garbage"],
  ["GET /readyz HTTP/1.1\r\n", "http1"],
  ["GET ", "http1"],
  ["GET", undefined],
  ["PUT / HTTP/1.1", "http1"],
  ["PROPFIND /", "http1"],
  [" GET /", "garbage"],
  ["get /", "garbage"],
  ["\x16\x03\x01\x02", "garbage"],
  ["\0", "garbage"],
  ["AAAAAAAAAAAAAAAAAAAA", "garbage"],
] as const;

for (const [text, protocol] of CASES) {
  Deno.test(`${JSON.stringify(text)} is ${protocol ?? "not decided yet"}`, {
    permissions: "none",
  }, () => assertEquals(protocolOf(encode(text)), protocol));
}

/** A transport that gives `pieces`, then its end. */
function transportOf(pieces: readonly string[]): Transport {
  const left = pieces.map(encode);
  return {
    peer: "test",
    remote: { address: "test", port: undefined },
    read: () => Promise.resolve(left.shift() ?? null),
    write: () => Promise.reject(new Error("not written to")),
    closeWrite: () => Promise.resolve(),
    close: () => {},
  };
}

Deno.test("all bytes read while sniffing are given back", { permissions: "none" }, async () => {
  const pieces = [...PREFACE, "rest"];
  const sniffed = await sniff(transportOf(pieces));
  assertEquals(sniffed?.protocol, "http2");
  assertEquals(new TextDecoder().decode(sniffed?.first), PREFACE);
});

Deno.test(
  "a peer that leaves while being sniffed is nothing",
  { permissions: "none" },
  async () => {
    assertEquals(await sniff(transportOf([])), undefined);
    assertEquals(await sniff(transportOf(["PRI"])), undefined);
  },
);
