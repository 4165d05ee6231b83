import { assertEquals } from "@std/assert";
import {
  formatRecord,
  infoOf,
  parseFinished,
  parseLeader,
  parseStarted,
} from "../../../src/process/process_record.ts";

const options = { permissions: "none" } as const;
const started = { processId: "0123456789abcdef".repeat(2), startedAt: new Date(1_000) };
const finished = {
  exit: { code: 137, signal: "SIGKILL" },
  finishedAt: new Date(2_000),
  order: 7,
};

Deno.test("records read back as they were written", options, () => {
  assertEquals(parseStarted(formatRecord(started)), started);
  assertEquals(parseFinished(formatRecord(finished)), finished);
  assertEquals(infoOf(started, finished), {
    processId: started.processId,
    status: "terminated",
    exitCode: 137,
    startedAt: started.startedAt,
    finishedAt: finished.finishedAt,
  });
});

Deno.test("a record that is cut short at any byte counts as not written", options, () => {
  for (const [record, parse] of [[started, parseStarted], [finished, parseFinished]] as const) {
    const text = formatRecord(record);
    for (let end = 0; end < text.length; end++) assertEquals(parse(text.slice(0, end)), undefined);
  }
});

Deno.test("the line of the helper says who the leader was", options, () => {
  const leader = { leaderPid: 12, startTicks: 345, bootId: "0e7c-b001" };
  assertEquals(parseLeader(JSON.stringify(leader) + "\n"), leader);
  for (const text of [undefined, JSON.stringify(leader), "{}\n", formatRecord(finished)]) {
    assertEquals(parseLeader(text), undefined);
  }
});

Deno.test("what is no record counts as not written", options, () => {
  for (const text of [undefined, "\n", "null\n", "[]\n", '"x"\n', "{}\n", "\0\0\0\n"]) {
    assertEquals(parseStarted(text), undefined);
    assertEquals(parseFinished(text), undefined);
  }
  const bad = { exit: { code: -1, signal: null }, finishedAt: "x", order: 1.5 };
  assertEquals(parseFinished(JSON.stringify(bad) + "\n"), undefined);
  assertEquals(parseStarted(JSON.stringify({ ...started, processId: "../x" }) + "\n"), undefined);
});
