// From the leader's exit to finality, against a clock and pipes that do what a test says.
import { assertEquals } from "@std/assert";
import { OutputPump } from "../../../src/process/output_pump.ts";
import { Leader, ProcessEntry, superviseProcess } from "../../../src/process/process_entry.ts";
import { type ExitReport, startedInfo } from "../../../src/process/process_info.ts";
import type { ProcessSpool } from "../../../src/spool/mod.ts";
import { createLogger } from "../../../src/log.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

const options = { permissions: "none" } as const;

function createProcess() {
  const clock = new FakeClock();
  const exit = Promise.withResolvers<ExitReport>();
  let pipe!: ReadableByteStreamController;
  const stdout = new ReadableStream<Uint8Array<ArrayBuffer>>({
    type: "bytes",
    start: (controller) => void (pipe = controller as ReadableByteStreamController),
  });
  const child = { pid: 5, stdout, stderr: stdout, exit: exit.promise, signal: () => {} };
  const flush = Promise.withResolvers<void>();
  const spool = { flush: () => flush.promise, finish: () => {} } as unknown as ProcessSpool;
  const chunks: Uint8Array[] = [];
  const pump = new OutputPump(stdout, { append: (c) => void chunks.push(c), end: () => {} });
  const leader = new Leader(child, clock, createLogger("error", () => {}));
  const entry = new ProcessEntry(startedInfo("x", clock.wallTime()), spool, leader);
  const state = { done: false };
  const supervised = superviseProcess(entry, leader, { clock, drainWindowMs: 500, pumps: [pump] });
  supervised.then(() => state.done = true);
  const settle = () => new Promise<void>((resolve) => setTimeout(resolve, 0));
  return { clock, exit, pipe: () => pipe, flush, supervised, state, settle, pump, chunks, leader };
}

Deno.test(
  "final at once when the pipes are closed and all is stored, not before",
  options,
  async () => {
    const { exit, pipe, flush, supervised, state, settle, clock, leader } = createProcess();
    exit.resolve({ code: 3, signal: null });
    await settle();
    assertEquals([state.done, leader.exitedAtMs], [false, clock.nowMs()]);
    pipe().close();
    pipe().byobRequest?.respond(0);
    await settle();
    assertEquals(state.done, false);
    flush.resolve();
    const { info } = await supervised;
    assertEquals([info.status, info.exitCode], ["failed", 3]);
    assertEquals(clock.pending, 0);
  },
);

Deno.test(
  "final after the drain window when a pipe is held, finished at the leader's exit",
  options,
  async () => {
    const { exit, supervised, state, settle, clock, pump } = createProcess();
    exit.resolve({ code: 0, signal: null });
    await settle();
    const exitedAt = clock.wallTime();
    clock.advance(499);
    await settle();
    assertEquals(state.done, false);
    clock.advance(1);
    const { info } = await supervised;
    assertEquals([info.status, info.finishedAt], ["completed", exitedAt]);
    await pump.stop();
  },
);

Deno.test(
  "pipes that close before the leader's exit change nothing until then",
  options,
  async () => {
    const { exit, pipe, flush, supervised, state, settle } = createProcess();
    pipe().close();
    pipe().byobRequest?.respond(0);
    flush.resolve();
    await settle();
    assertEquals(state.done, false);
    exit.resolve({ code: 137, signal: "SIGKILL" });
    assertEquals((await supervised).info.status, "terminated");
  },
);
