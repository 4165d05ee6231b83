// Which processes there are, in whatever order things happen to them.
import { assertEquals, assertThrows } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import type { ProcessEntry } from "../../../src/process/process_entry.ts";
import { ProcessRegister } from "../../../src/process/process_register.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

const options = { permissions: "none" } as const;

function createRegister(retain = 10) {
  const clock = new FakeClock();
  const dropped: string[] = [];
  const drop = (entry: ProcessEntry) => void dropped.push(entry.processId);
  const register = new ProcessRegister({ clock, retain, retainForMs: 1_000, drop });
  const create = (processId: string) =>
    ({ processId, forgotten: false, finalAtMs: undefined }) as ProcessEntry;
  const finish = (entry: ProcessEntry) => {
    entry.finalAtMs = clock.nowMs();
    register.noteFinal(entry);
  };
  const counts = () => [register.running.size, register.finishedCount];
  return { register, clock, dropped, create, finish, counts };
}

Deno.test("running, final, dropped", options, () => {
  const { register, clock, dropped, create, finish, counts } = createRegister();
  const entry = create("a");
  register.noteRunning(entry);
  register.add(entry);
  assertEquals(counts(), [1, 0]);
  finish(entry);
  assertEquals(counts(), [0, 1]);
  clock.advance(1_000);
  assertEquals([dropped, counts()], [["a"], [0, 0]]);
  register.forget(entry);
  assertThrows(() => register.lookUp("a"), AgentError, 'process "a" not found');
  assertEquals(clock.pending, 0);
});

Deno.test(
  "forgotten while it runs: its slot is held until it is final, and it is not kept",
  options,
  () => {
    const { register, clock, create, finish, counts } = createRegister();
    const entry = create("a");
    register.noteRunning(entry);
    register.add(entry);
    register.forget(entry);
    assertEquals([register.find("a"), counts()], [undefined, [1, 0]]);
    finish(entry);
    assertEquals([counts(), clock.pending], [[0, 0], 0]);
  },
);

Deno.test("final before it could be added: it holds no slot, and is kept once", options, () => {
  const { register, create, finish, counts } = createRegister();
  const entry = create("a");
  finish(entry);
  register.add(entry);
  assertEquals([register.find("a"), counts()], [entry, [0, 1]]);
  register[Symbol.dispose]();
});
