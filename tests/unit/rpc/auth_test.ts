import { assertEquals, assertThrows } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { createLogger } from "../../../src/log.ts";
import { createAuthenticator } from "../../../src/rpc/auth.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

const silent = createLogger("error", () => {});
const NOBODY = { authorization: undefined, certified: false };

Deno.test(
  "none lets everybody pass, mtls those with a certificate",
  { permissions: "none" },
  () => {
    const clock = new FakeClock();
    assertEquals(createAuthenticator({ mode: "none" }, clock, silent).refusal(NOBODY), undefined);
    const mtls = createAuthenticator({ mode: "mtls" }, clock, silent);
    assertEquals(mtls.refusal({ ...NOBODY, certified: true }), undefined);
    const refusal = mtls.refusal({ ...NOBODY, authorization: "Bearer x" });
    assertEquals([refusal?.kind, refusal?.message], [
      "unauthenticated",
      "a client certificate is required",
    ]);
  },
);

Deno.test("a token is compared whole and re-read when its file changes", {
  permissions: { read: true, write: true },
}, async () => {
  const dir = await Deno.makeTempDir();
  try {
    const tokenFile = `${dir}/token`;
    await Deno.writeTextFile(tokenFile, "s3cret-token\n");
    const clock = new FakeClock();
    const lines: string[] = [];
    const log = createLogger("debug", (line) => lines.push(line));
    const token = createAuthenticator({ mode: "token", tokenFile }, clock, log);
    const refusal = (authorization?: string) =>
      token.refusal({ authorization, certified: true })?.message;

    assertEquals(refusal("Bearer s3cret-token"), undefined);
    assertEquals(refusal("bearer  s3cret-token"), undefined);
    assertEquals(refusal(), "missing authorization: a bearer token is required");
    for (const header of ["", "Basic abc", "Bearer", "Bearer ", "Bearer a b", "s3cret-token"]) {
      assertEquals(refusal(header), "malformed authorization: expected a bearer token", header);
    }
    for (const wrong of ["s3cret-toke", "s3cret-tokenn", "S3cret-token", "x", "\u00fc"]) {
      assertEquals(refusal(`Bearer ${wrong}`), "invalid bearer token", wrong);
    }

    await Deno.writeTextFile(`${dir}/new`, "another");
    await Deno.rename(`${dir}/new`, tokenFile);
    clock.advance(1_000);
    assertEquals(refusal("Bearer another"), undefined);
    assertEquals(refusal("Bearer s3cret-token"), "invalid bearer token");

    // In the middle of being replaced: the old one stays in force.
    await Deno.writeTextFile(tokenFile, "");
    clock.advance(1_000);
    assertEquals(refusal("Bearer another"), undefined);
    await Deno.remove(tokenFile);
    clock.advance(1_000);
    assertEquals(refusal("Bearer another"), undefined);
    await Deno.writeTextFile(tokenFile, "third");
    clock.advance(1_000);
    assertEquals(refusal("Bearer third"), undefined);
    assertEquals(lines.some((line) => /s3cret|another|third/.test(line)), false, lines.join(""));
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("a token file that is missing, empty or no token is refused at once", {
  permissions: { read: true, write: true },
}, async () => {
  const dir = await Deno.makeTempDir();
  try {
    const tokenFile = `${dir}/token`;
    const create = () => createAuthenticator({ mode: "token", tokenFile }, new FakeClock(), silent);
    assertThrows(create, AgentError, "cannot read the token file");
    for (const content of ["", "\n", "two words", "x".repeat(5_000)]) {
      await Deno.writeTextFile(tokenFile, content);
      assertThrows(create, AgentError, "must hold one token");
    }
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});
