import { assertEquals } from "@std/assert";
import { Retention } from "../../../src/process/retention.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

const options = { permissions: "none" } as const;

function createRetention(maxCount: number, maxAgeMs: number) {
  const clock = new FakeClock();
  const dropped: string[] = [];
  const retention = new Retention<{ name: string; finalAtMs: number }>({
    clock,
    maxCount,
    maxAgeMs,
    drop: ({ name }) => dropped.push(name),
  });
  const add = (name: string) => retention.add({ name, finalAtMs: clock.nowMs() });
  return { clock, dropped, retention, add };
}

Deno.test("the oldest goes when there are too many", options, () => {
  const { dropped, add, retention } = createRetention(2, 1_000);
  for (const name of ["a", "b", "c", "d"]) add(name);
  assertEquals(dropped, ["a", "b"]);
  assertEquals(retention.count, 2);
  retention[Symbol.dispose]();
});

Deno.test("each goes at its age, with one timer, whatever the wall clock does", options, () => {
  const { clock, dropped, add } = createRetention(100, 1_000);
  add("a");
  clock.advance(400);
  add("b");
  assertEquals(clock.pending, 1);
  clock.jumpWall(86_400_000);
  clock.advance(599);
  assertEquals(dropped, []);
  clock.advance(1);
  assertEquals(dropped, ["a"]);
  clock.jumpWall(-86_400_000);
  clock.advance(400);
  assertEquals(dropped, ["a", "b"]);
  assertEquals(clock.pending, 0);
});

Deno.test("none kept at all, none aged at all", options, () => {
  const { dropped, add, clock } = createRetention(0, 1_000);
  add("a");
  assertEquals(dropped, ["a"]);
  assertEquals(clock.pending, 0);
});

Deno.test("disposing leaves no timer and drops nothing", options, () => {
  const { clock, dropped, add, retention } = createRetention(10, 1_000);
  add("a");
  retention[Symbol.dispose]();
  clock.advance(10_000);
  assertEquals([dropped, clock.pending], [[], 0]);
});
