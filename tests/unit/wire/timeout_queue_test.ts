// Many waits, one timer.
import { assertEquals, assertThrows } from "@std/assert";
import { TimeoutQueue } from "../../../src/wire/timeout_queue.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

function open() {
  const clock = new FakeClock();
  const expired: string[] = [];
  const queue = new TimeoutQueue<string>(clock, 1_000, (item) => expired.push(item));
  return { clock, queue, expired };
}

Deno.test("what stays too long times out, oldest first", { permissions: "none" }, () => {
  const { clock, queue, expired } = open();
  queue.add("one");
  clock.advance(400);
  queue.add("two");
  queue.add("three");
  clock.advance(599);
  assertEquals(expired, []);
  clock.advance(1);
  assertEquals(expired, ["one"]);
  clock.advance(399);
  assertEquals(expired, ["one"]);
  clock.advance(1);
  assertEquals(expired, ["one", "two", "three"]);
});

Deno.test("what is taken out in time does not time out", { permissions: "none" }, () => {
  const { clock, queue, expired } = open();
  queue.add("one");
  clock.advance(900);
  queue.delete("one");
  queue.delete("never added");
  queue.add("two");
  clock.advance(999);
  assertEquals(expired, []);
  queue.add("three");
  clock.advance(1);
  assertEquals(expired, ["two"]);
  queue.delete("three");
  clock.advance(10_000);
  assertEquals(expired, ["two"]);
  // And it goes on after a rest.
  queue.add("four");
  clock.advance(1_000);
  assertEquals(expired, ["two", "four"]);
});

Deno.test("a cleared queue has no timer and no waits", { permissions: "none" }, () => {
  const { clock, queue, expired } = open();
  queue.add("one");
  queue.clear();
  assertEquals(clock.pending, 0);
  clock.advance(5_000);
  assertEquals(expired, []);
});

Deno.test("a thousand short waits cost one timer", { permissions: "none" }, () => {
  const { clock, queue } = open();
  for (let i = 0; i < 1_000; i++) {
    queue.add(`${i}`);
    queue.delete(`${i}`);
  }
  assertEquals(clock.pending, 1);
  queue.clear();
});

Deno.test("what times out may add more", { permissions: "none" }, () => {
  const clock = new FakeClock();
  const expired: number[] = [];
  const queue: TimeoutQueue<number> = new TimeoutQueue(clock, 100, (item) => {
    expired.push(item);
    if (item < 3) queue.add(item + 1);
  });
  queue.add(1);
  clock.advance(100);
  assertEquals(expired, [1]);
  clock.advance(200);
  assertEquals(expired, [1, 2, 3]);
  assertEquals(clock.pending, 0);
});

Deno.test("the others time out though one of them failed to", { permissions: "none" }, () => {
  const clock = new FakeClock();
  const expired: string[] = [];
  const queue = new TimeoutQueue<string>(clock, 1_000, (item) => {
    if (item === "bad") throw new Error("bad");
    expired.push(item);
  });
  queue.add("bad");
  queue.add("one");
  assertThrows(() => clock.advance(1_000), Error, "bad");
  queue.add("two");
  clock.advance(1_000);
  assertEquals(expired, ["one", "two"]);
  assertEquals(clock.pending, 0);
});
