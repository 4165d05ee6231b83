import { assertEquals } from "@std/assert";
import { MessageFraming } from "../../../src/wire/message_framing.ts";

function message(length: number, flag = 0): Uint8Array {
  const bytes = new Uint8Array(5 + length);
  new DataView(bytes.buffer).setUint32(1, length);
  bytes[0] = flag;
  return bytes;
}

Deno.test("whole messages are complete, in one piece or many", { permissions: "none" }, () => {
  const framing = new MessageFraming(16 * 1024 * 1024);
  assertEquals(framing.complete, true);
  for (const byte of [...message(0), ...message(3, 1), ...message(70)]) {
    assertEquals(framing.push(Uint8Array.of(byte)), undefined);
  }
  assertEquals([framing.complete, framing.messages, framing.bytes], [true, 3, 88]);
  framing.push(new Uint8Array([...message(1), ...message(2)]));
  assertEquals([framing.complete, framing.messages], [true, 5]);
});

Deno.test("a cut message is not complete", { permissions: "none" }, () => {
  for (const length of [1, 4, 5, 6, 14]) {
    const framing = new MessageFraming(16 * 1024 * 1024);
    framing.push(message(10).subarray(0, length));
    assertEquals(framing.complete, false, `after ${length} bytes`);
  }
});

Deno.test("a flag other than 0 and 1 is a fault", { permissions: "none" }, () => {
  assertEquals(new MessageFraming(16 * 1024 * 1024).push(message(3, 2)), "flag");
});

Deno.test("a large message in one-byte pieces is a fault", { permissions: "none" }, () => {
  const framing = new MessageFraming(16 * 1024 * 1024);
  assertEquals(framing.push(message(16 * 1024 * 1024).subarray(0, 5)), undefined);
  let pieces = 0;
  while (framing.push(new Uint8Array(1)) === undefined) pieces++;
  assertEquals(pieces > 60_000 && pieces < 70_000, true, `${pieces}`);
});

Deno.test("a length of 4 GiB is followed, not allocated", { permissions: "none" }, () => {
  const framing = new MessageFraming(16 * 1024 * 1024);
  assertEquals(framing.push(Uint8Array.of(0, 255, 255, 255, 255, 1)), undefined);
  assertEquals(framing.complete, false);
});
