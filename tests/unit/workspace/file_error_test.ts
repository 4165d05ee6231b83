// The error table of file calls, for errno names that tests cannot cause everywhere.
import { assertEquals } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { fileError } from "../../../src/workspace/file_error.ts";

function osError(code: string): Error {
  return Object.assign(new Error(`${code}: made up`), { code });
}

Deno.test("each errno has its kind, and the message says what and why", {
  permissions: "none",
}, () => {
  const table = {
    ENOENT: "not-found",
    EACCES: "permission-denied",
    EPERM: "permission-denied",
    EISDIR: "failed-precondition",
    ENOTDIR: "failed-precondition",
    ELOOP: "failed-precondition",
    EROFS: "failed-precondition",
    EBUSY: "failed-precondition",
    ENXIO: "failed-precondition",
    ENOSPC: "resource-exhausted",
    EDQUOT: "resource-exhausted",
    EMFILE: "resource-exhausted",
    ENFILE: "resource-exhausted",
    ENAMETOOLONG: "invalid-argument",
    EIO: "internal",
    EINVAL: "internal",
    EFBIG: "internal",
    ESTALE: "internal",
  } as const;
  for (const [code, kind] of Object.entries(table)) {
    const error = fileError(osError(code), "read", "a b");
    assertEquals(error.kind, kind, code);
    if (code === "ENOENT") assertEquals(error.message, 'file "a b" not found');
    else assertEquals(error.message.startsWith('cannot read file "a b": '), true, error.message);
    if (code !== "ENOENT") assertEquals(error.message.includes(code), true, error.message);
  }
});

Deno.test("a refusal by Deno names the policy", { permissions: "none" }, () => {
  const error = fileError(new Deno.errors.NotCapable("x"), "write", "f");
  assertEquals(error.kind, "permission-denied");
  assertEquals(
    error.message,
    'cannot write file "f": not permitted by the agent\'s policy (Deno permission scopes)',
  );
});

Deno.test(
  "an AgentError passes through, anything else is internal",
  { permissions: "none" },
  () => {
    const own = new AgentError("cancelled", "x");
    assertEquals(fileError(own, "read", "f"), own);
    assertEquals(fileError(new RangeError("secret detail"), "read", "f").kind, "internal");
    assertEquals(
      fileError(new RangeError("secret detail"), "read", "f").message,
      'cannot read file "f": unexpected error',
    );
  },
);
