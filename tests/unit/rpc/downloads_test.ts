// Who may read a file when many do.
import { assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { type Download, Downloads } from "../../../src/rpc/downloads.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

const MOST = 64;
const NEVER = new AbortController().signal;

/** As many as there may be; `ended` gets the number of each that has to make room. */
async function fill(downloads: Downloads, ended: number[]): Promise<Download[]> {
  const open: Download[] = [];
  for (let index = 0; index < MOST; index++) {
    open.push(await downloads.enter(NEVER, () => ended.push(index)));
  }
  return open;
}

/** Enters in the background: whether it is in. */
function enter(downloads: Downloads, signal = NEVER) {
  const entry = { isIn: false, done: Promise.resolve() };
  entry.done = downloads.enter(signal, () => {}).then(() => void (entry.isIn = true));
  return entry;
}

async function turn(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}

Deno.test("one too many waits until another has left", { permissions: "none" }, async () => {
  const clock = new FakeClock();
  const downloads = new Downloads(clock);
  const ended: number[] = [];
  const open = await fill(downloads, ended);
  clock.advance(4_000);
  const [first, second] = [enter(downloads), enter(downloads)];
  await turn();
  assertEquals([first.isIn, second.isIn], [false, false]);
  open[7]![Symbol.dispose]();
  await turn();
  assertEquals([first.isIn, second.isIn], [true, false]);
  open[8]![Symbol.dispose]();
  await turn();
  assertEquals([second.isIn, ended.length, clock.pending], [true, 0, 0]);
});

Deno.test(
  "the one that has stood still for longest makes room",
  { permissions: "none" },
  async () => {
    const clock = new FakeClock();
    const downloads = new Downloads(clock);
    const ended: number[] = [];
    const open = await fill(downloads, ended);
    clock.advance(3_000);
    open[0]!.moved();
    const first = enter(downloads);
    clock.advance(2_000);
    await turn();
    assertEquals([first.isIn, ended], [true, [1]]);
    // What has made room does not come back by moving on.
    open[1]!.moved();
    const second = enter(downloads);
    clock.advance(1);
    await turn();
    assertEquals([second.isIn, ended], [true, [1, 2]]);
  },
);

Deno.test("who does not wait any more is not let in", { permissions: "none" }, async () => {
  const clock = new FakeClock();
  const downloads = new Downloads(clock);
  await fill(downloads, []);
  const leaving = new AbortController();
  const gone = enter(downloads, leaving.signal);
  leaving.abort(new AgentError("cancelled", "gone"));
  await assertRejects(() => gone.done, AgentError, "gone");
  assertEquals(clock.pending, 0);
});
