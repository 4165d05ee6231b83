// Waiting: each change wakes each waiting watcher once, and nothing is left behind.
import { assertEquals } from "@std/assert";
import { ChangeSignal } from "../../../src/spool/change_signal.ts";

const none = { permissions: "none" } as const;

Deno.test("a wait ends at the next change", none, async () => {
  const change = new ChangeSignal();
  using watcher = change.watch();
  let woken = 0;
  const wait = watcher.wait().then(() => woken++);
  await Promise.resolve();
  assertEquals([woken, change.waiting], [0, 1]);
  change.notify();
  await wait;
  assertEquals([woken, change.waiting], [1, 0]);
});

Deno.test("a change between two waits is not missed, and counts once", none, async () => {
  const change = new ChangeSignal();
  using watcher = change.watch();
  change.notify();
  change.notify();
  await watcher.wait();
  const second = watcher.wait();
  assertEquals(change.waiting, 1);
  change.notify();
  await second;
});

Deno.test("disposing ends the wait and takes the watcher off", none, async () => {
  const change = new ChangeSignal();
  const watchers = [change.watch(), change.watch(), change.watch()];
  const waits = watchers.map((watcher) => watcher.wait());
  watchers[1]![Symbol.dispose]();
  await waits[1];
  assertEquals(change.waiting, 2);
  await watchers[1]!.wait();
  for (const watcher of watchers) watcher[Symbol.dispose]();
  await Promise.all(waits);
  assertEquals(change.waiting, 0);
});
