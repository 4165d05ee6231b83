// Which Deno is new enough.
import { assertEquals } from "@std/assert";
import { GRPC_VERSION, isAtLeast, MIN_DENO_VERSION, VERSION } from "../../src/version.ts";

Deno.test("version: a Deno without back-pressure is too old", { permissions: "none" }, () => {
  for (const version of ["2.9.3", "2.8.10", "1.99.99", "2.5.0+abc"]) {
    assertEquals(isAtLeast(version, MIN_DENO_VERSION), false, version);
  }
  for (const version of ["2.9.4", "2.9.6", "2.9.10", "2.10.0", "3.0.0", "2.9.6+7dd9a50"]) {
    assertEquals(isAtLeast(version, MIN_DENO_VERSION), true, version);
  }
});

Deno.test(
  "version: ours and the library's are plain semantic versions",
  { permissions: "none" },
  () => {
    for (const version of [VERSION, GRPC_VERSION]) {
      assertEquals(/^\d+\.\d+\.\d+$/.test(version), true, version);
    }
  },
);
