import { assertEquals, assertThrows } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { parseTimeout } from "../../../src/wire/grpc_timeout.ts";

Deno.test("a timeout is milliseconds in all its units", { permissions: "none" }, () => {
  assertEquals(parseTimeout(undefined), undefined);
  assertEquals(parseTimeout("5S"), 5_000);
  assertEquals(parseTimeout("250m"), 250);
  assertEquals(parseTimeout("1500u"), 1.5);
  assertEquals(parseTimeout("2000000n"), 2);
  assertEquals(parseTimeout("2M"), 120_000);
});

Deno.test("regression: a timeout of years does not expire at once", { permissions: "none" }, () => {
  // grpc-js takes milliseconds modulo 2^32.
  assertEquals(parseTimeout("99999999S"), 99_999_999_000);
  assertEquals(parseTimeout("99999999H"), 99_999_999 * 3_600_000);
});

Deno.test("a malformed timeout is an error", { permissions: "none" }, () => {
  for (const header of ["", "5", "S", "-1S", "123456789S", "5S5S", "1.5S", "5x"]) {
    assertThrows(() => parseTimeout(header), AgentError, "malformed grpc-timeout");
  }
});
