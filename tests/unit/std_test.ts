// The local stand-ins for jsr:@std/assert and jsr:@std/streams behave as published.
import { assert, assertEquals, AssertionError, assertRejects, assertThrows } from "@std/assert";
import { toArrayBuffer, toText } from "@std/streams";

function streamOf<T>(...chunks: T[]): ReadableStream<T> {
  return ReadableStream.from(chunks);
}

Deno.test(
  "assert passes what is truthy and throws for what is not",
  { permissions: "none" },
  () => {
    assert(1);
    assertThrows(() => assert(0, "zero"), AssertionError, "zero");
  },
);

Deno.test("assertEquals compares deeply", { permissions: "none" }, () => {
  assertEquals({ a: [1, new Uint8Array([2])] }, { a: [1, new Uint8Array([2])] });
  assertThrows(() => assertEquals<unknown>({ a: 1 }, { a: 2 }), AssertionError, "not equal");
  assertThrows(() => assertEquals(NaN, 0, "context"), AssertionError, "context");
});

Deno.test(
  "assertThrows returns the error and checks class and text",
  { permissions: "none" },
  () => {
    const error = assertThrows(
      () => {
        throw new TypeError("bad thing");
      },
      TypeError,
      "bad",
    );
    assertEquals(error.message, "bad thing");
    assertThrows(() => assertThrows(() => {}), AssertionError, "to throw");
    assertThrows(
      () =>
        assertThrows(() => {
          throw new Error("x");
        }, TypeError),
      AssertionError,
      "instance of",
    );
    assertThrows(
      () =>
        assertThrows(
          () => {
            throw new Error("x");
          },
          Error,
          "y",
        ),
      AssertionError,
      "to include",
    );
  },
);

Deno.test(
  "assertRejects tells a rejection from a throw and from success",
  { permissions: "none" },
  async () => {
    await assertRejects(() => Promise.reject(new RangeError("far")), RangeError, "far");
    await assertRejects(() => assertRejects(() => Promise.resolve()), AssertionError, "to reject");
    await assertRejects(
      () =>
        assertRejects(() => {
          throw new Error("sync");
        }),
      AssertionError,
      "throws when expected to reject",
    );
  },
);

Deno.test(
  "toText joins characters that are split between chunks",
  { permissions: "none" },
  async () => {
    const bytes = new TextEncoder().encode("aé€");
    const chunks = Array.from(bytes, (byte) => new Uint8Array([byte]));
    assertEquals(await toText(streamOf(...chunks)), "aé€");
    assertEquals(await toText(streamOf("x", "y")), "xy");
  },
);

Deno.test("toArrayBuffer joins all chunks", { permissions: "none" }, async () => {
  const buffer = await toArrayBuffer(streamOf(new Uint8Array([1, 2]), new Uint8Array([3])));
  assertEquals(new Uint8Array(buffer), new Uint8Array([1, 2, 3]));
});
