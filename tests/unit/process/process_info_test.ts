import { assertEquals, assertThrows } from "@std/assert";
import { finishedInfo, startedInfo, statusOfExit } from "../../../src/process/process_info.ts";

const options = { permissions: "none" } as const;

Deno.test(
  "exit 0 completes, any other code fails, 137 included, a signal terminates",
  options,
  () => {
    assertEquals(statusOfExit({ code: 0, signal: null }), "completed");
    assertEquals(statusOfExit({ code: 1, signal: null }), "failed");
    assertEquals(statusOfExit({ code: 137, signal: null }), "failed");
    assertEquals(statusOfExit({ code: 137, signal: "SIGKILL" }), "terminated");
    assertEquals(statusOfExit({ code: 162, signal: "34" }), "terminated");
  },
);

Deno.test("a process is final once and for good", options, () => {
  const started = startedInfo("a", new Date(1));
  assertEquals([started.status, started.exitCode, started.finishedAt], ["running", 0, undefined]);
  const finished = finishedInfo(started, { code: 3, signal: null }, new Date(2));
  assertEquals([finished.status, finished.exitCode, finished.finishedAt], [
    "failed",
    3,
    new Date(2),
  ]);
  assertThrows(() => finishedInfo(finished, { code: 0, signal: null }, new Date(3)), TypeError);
});
