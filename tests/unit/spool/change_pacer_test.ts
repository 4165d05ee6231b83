// When waiting readers are woken.
import { assert, assertEquals } from "@std/assert";
import type { Clock, Timer } from "../../../src/clock.ts";
import { ChangePacer } from "../../../src/spool/change_pacer.ts";
import { ChangeSignal } from "../../../src/spool/change_signal.ts";

/** A clock that the test moves; at most one timer. */
class HandClock implements Clock {
  now = 0;
  due: (() => void) | undefined;
  nowMs = () => this.now;
  wallTime = () => new Date(0);

  setTimer(_delayMs: number, callback: () => void): Timer {
    assertEquals(this.due, undefined);
    this.due = callback;
    return { cancel: () => this.due = undefined };
  }
}

function createWaiting() {
  const clock = new HandClock();
  const change = new ChangeSignal();
  const pacer = new ChangePacer(change, clock);
  const watcher = change.watch();
  watcher.wait();
  const wait = () => watcher.wait();
  return { clock, change, pacer, wait };
}

Deno.test("the first bytes after a rest wake at once", { permissions: "none" }, () => {
  const { clock, change, pacer, wait } = createWaiting();
  pacer.added(1);
  assertEquals([change.waiting, clock.due], [0, undefined]);
  wait();
  clock.now = 1;
  pacer.added(1);
  assertEquals([change.waiting, clock.due], [0, undefined]);
});

Deno.test("the bytes of a burst wake together, a moment later", { permissions: "none" }, () => {
  const { clock, change, pacer, wait } = createWaiting();
  pacer.added(1);
  wait();
  for (let i = 0; i < 10; i++) pacer.added(4096);
  assertEquals(change.waiting, 1);
  clock.due!();
  assertEquals([change.waiting, clock.due], [0, undefined]);
});

Deno.test("enough bytes wake at once, and leave no timer", { permissions: "none" }, () => {
  const { clock, change, pacer, wait } = createWaiting();
  pacer.added(1);
  wait();
  for (let i = 0; i < 15; i++) pacer.added(16 * 1024);
  assertEquals(change.waiting, 1);
  pacer.added(16 * 1024);
  assertEquals([change.waiting, clock.due], [0, undefined]);
});

Deno.test("an end wakes at once, and leaves no timer", { permissions: "none" }, () => {
  const { clock, change, pacer, wait } = createWaiting();
  pacer.added(1);
  wait();
  pacer.added(1);
  assert(clock.due !== undefined);
  pacer.tell();
  assertEquals([change.waiting, clock.due], [0, undefined]);
});

Deno.test("without anyone who waits there is no timer", { permissions: "none" }, async () => {
  const { clock, change, pacer, wait } = createWaiting();
  pacer.added(1);
  pacer.added(1);
  assertEquals(clock.due, undefined);
  // Who looks only now has missed nothing.
  await wait();
  assertEquals(change.waiting, 0);
});
