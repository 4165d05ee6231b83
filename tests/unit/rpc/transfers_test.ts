// Who may read a file when many do.
import { assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { type Transfer, Transfers } from "../../../src/rpc/transfers.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

const MOST = 64;
const NEVER = new AbortController().signal;

/** As many as there may be; `ended` gets the number of each that has to make room. */
async function fill(transfers: Transfers, ended: number[]): Promise<Transfer[]> {
  const open: Transfer[] = [];
  for (let index = 0; index < MOST; index++) {
    open.push(await transfers.enter(NEVER, () => ended.push(index)));
  }
  return open;
}

/** Enters in the background: whether it is in. */
function enter(transfers: Transfers, signal = NEVER) {
  const entry = { isIn: false, done: Promise.resolve() };
  entry.done = transfers.enter(signal, () => {}).then(() => void (entry.isIn = true));
  return entry;
}

async function turn(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}

Deno.test("one too many waits until another has left", { permissions: "none" }, async () => {
  const clock = new FakeClock();
  const transfers = new Transfers(clock);
  const ended: number[] = [];
  const open = await fill(transfers, ended);
  clock.advance(4_000);
  const [first, second] = [enter(transfers), enter(transfers)];
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
    const transfers = new Transfers(clock);
    const ended: number[] = [];
    const open = await fill(transfers, ended);
    clock.advance(3_000);
    open[0]!.moved();
    const first = enter(transfers);
    clock.advance(2_000);
    await turn();
    assertEquals([first.isIn, ended], [true, [1]]);
    // What has made room does not come back by moving on.
    open[1]!.moved();
    const second = enter(transfers);
    clock.advance(1);
    await turn();
    assertEquals([second.isIn, ended], [true, [1, 2]]);
  },
);

Deno.test("who does not wait any more is not let in", { permissions: "none" }, async () => {
  const clock = new FakeClock();
  const transfers = new Transfers(clock);
  await fill(transfers, []);
  const leaving = new AbortController();
  const gone = enter(transfers, leaving.signal);
  leaving.abort(new AgentError("cancelled", "gone"));
  await assertRejects(() => gone.done, AgentError, "gone");
  assertEquals(clock.pending, 0);
});
