import { assertEquals } from "@std/assert";
import http2 from "node:http2";
import { Duplex } from "node:stream";
import { checkDenoVersion } from "../../../src/wire/http2_guard.ts";

Deno.test("a Deno without back-pressure is refused", { permissions: "none" }, () => {
  for (const version of ["1.46.0", "2.8.9", "2.9.3"]) {
    assertEquals(checkDenoVersion(version)?.includes(`Deno ${version}`), true, version);
  }
  for (const version of ["2.9.4", "2.9.6", "2.10.0", "3.0.0", "2.9.5+abc", "canary"]) {
    assertEquals(checkDenoVersion(version), undefined, version);
  }
});

Deno.test("a session is destroyed in a later turn, once", { permissions: "none" }, async () => {
  const duplex = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const session = http2.performServerHandshake(duplex);
  let closes = 0;
  const closed = new Promise<void>((resolve) =>
    session.on("close", () => {
      closes++;
      resolve();
    })
  );
  session.destroy();
  session.destroy();
  assertEquals(session.destroyed, false);
  await Promise.resolve();
  assertEquals(session.destroyed, false);
  await closed;
  session.destroy();
  await new Promise<void>((resolve) => setImmediate(resolve));
  assertEquals([session.destroyed, closes], [true, 1]);
  duplex.destroy();
});
