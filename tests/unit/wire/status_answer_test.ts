// What the client learns of an error, and what the log does.
import { status } from "@grpc/grpc-js";
import { assertEquals } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { statusOf } from "../../../src/wire/status_answer.ts";
import { createMemoryLogger } from "../../helpers/process_table.ts";

const METHOD = "/ateenv.v1alpha.FileSystemService/WriteFile";

Deno.test("an error of ours is written down", () => {
  const { log, lines } = createMemoryLogger();
  const origin = { method: METHOD, log, abortReason: undefined };
  assertEquals(statusOf(new TypeError("secret"), origin).details, "internal error");
  assertEquals(statusOf(new AgentError("internal", "EIO"), origin).code, status.INTERNAL);
  assertEquals(lines.map(({ level }) => level), ["error", "error"]);
});

Deno.test("a client cannot fill the log with errors by calls that it breaks itself", () => {
  const { log, lines } = createMemoryLogger();
  const broken = new AgentError("internal", "invalid compression flag");
  const origin = { method: METHOD, log, abortReason: broken };
  const { code, details } = statusOf(broken, origin);
  assertEquals([code, details], [status.INTERNAL, "invalid compression flag"]);
  assertEquals(lines, []);
});
