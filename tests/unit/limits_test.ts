// What many streams share.
import { assertEquals } from "@std/assert";
import { bytesPerStream, MAX_PIECE_BYTES } from "../../src/limits.ts";

Deno.test("few streams have whole pieces, a thousand stay within what all may cost", {
  permissions: "none",
}, () => {
  for (const count of [0, 1, 64]) assertEquals(bytesPerStream(count), MAX_PIECE_BYTES);
  assertEquals(bytesPerStream(65), 512 * 1024);
  assertEquals(bytesPerStream(1000), 64 * 1024);
  assertEquals(bytesPerStream(1_000_000), 64 * 1024);
});
