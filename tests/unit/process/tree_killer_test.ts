// Kills on a machine so busy that every look at its processes takes long.
import { assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import type { ProcessScanner } from "../../../src/process/kill/process_scanner.ts";
import type { ProcessEntry, ProcessSnapshot } from "../../../src/process/kill/process_snapshot.ts";
import { TreeKiller } from "../../../src/process/kill/tree_killer.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

/** A killer for which each look takes `lookMs`, and shows `entries` until they are sent SIGKILL. */
function slowKiller(clock: FakeClock, lookMs: number, entries: ProcessEntry[] = []) {
  let looks = 0;
  const sent: string[] = [];
  const processes = new Map(entries.map((entry) => [entry.pid, entry]));
  const fresh = () => {
    looks++;
    const { promise, resolve } = Promise.withResolvers<ProcessSnapshot>();
    clock.setTimer(
      lookMs,
      () => resolve({ bootTicks: 0, bootId: "", processes: new Map(processes), markersRead: true }),
    );
    return promise;
  };
  const signal = (name: string, pids: readonly number[]) => {
    sent.push(`${name} ${pids.join(" ")}`);
    if (name === "KILL") { for (const pid of pids) processes.delete(pid); }
  };
  const scanner = { fresh, signal, helperPids: [] } as unknown as ProcessScanner;
  const killer = new TreeKiller({
    scanner,
    clock,
    agentPid: 1,
    others: () => [],
    direct: { reach: "group", signal: () => Promise.resolve() },
  });
  return { killer, looks: () => looks, sent };
}

/** Lets time pass, in small steps, until `work` has settled. */
async function settle(clock: FakeClock, work: Promise<void>): Promise<void> {
  let settled = false;
  const noted = work.finally(() => settled = true);
  noted.catch(() => {});
  while (!settled) {
    clock.advance(100);
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  await noted;
}

const TARGET = { processId: "0123456789abcdef0123456789abcdef", leader: undefined };

Deno.test("a look that takes longer than the patience is waited for, not begun anew", {
  permissions: "none",
}, async () => {
  const clock = new FakeClock();
  const { killer, looks } = slowKiller(clock, 3_000);
  await settle(clock, killer.kill(TARGET, { graceMs: 0 }));
  assertEquals(looks(), 1);
});

Deno.test("a look that takes longer than the bound ends the kill, and says so", {
  permissions: "none",
}, async () => {
  const clock = new FakeClock();
  const { killer } = slowKiller(clock, 6_000);
  await assertRejects(
    () => settle(clock, killer.kill(TARGET, { graceMs: 0 })),
    AgentError,
    "could not be looked at",
  );
});

Deno.test("a kill whose bound is over goes on: no tree is left stopped", {
  permissions: "none",
}, async () => {
  const clock = new FakeClock();
  const entry: ProcessEntry = {
    pid: 4711,
    name: "sleep",
    state: "T",
    parent: 1,
    processGroup: 4711,
    session: 4711,
    startTicks: 1,
    alive: true,
    marker: TARGET.processId,
  };
  const { killer, sent } = slowKiller(clock, 4_000, [entry]);
  await assertRejects(() => settle(clock, killer.kill(TARGET, { graceMs: 0 })), AgentError);
  assertEquals(sent.filter((signal) => signal.startsWith("KILL")), []);
  const killed = async () => {
    while (!sent.some((signal) => signal.startsWith("KILL") && signal.includes("4711"))) {
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  };
  await settle(clock, killed());
});
