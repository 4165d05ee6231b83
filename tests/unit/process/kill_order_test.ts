// The order of a kill, against a kernel that does what a test says.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import type { KillLeader } from "../../../src/process/kill/hunt.ts";
import type { ProcessScanner } from "../../../src/process/kill/process_scanner.ts";
import type { ProcessEntry, ProcessSnapshot } from "../../../src/process/kill/process_snapshot.ts";
import { KILL_BOUND_MS, TreeKiller } from "../../../src/process/kill/tree_killer.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

const options = { permissions: "none" } as const;
const MARKER = "a".repeat(32);

function entry(pid: number, fields: Partial<ProcessEntry> = {}): ProcessEntry {
  return {
    pid,
    name: `p${pid}`,
    state: "S",
    parent: 1,
    processGroup: pid,
    session: pid,
    startTicks: 10 * pid,
    alive: true,
    marker: MARKER,
    ...fields,
  };
}

/** A kernel: `looks` are consumed one a look (the last one stays), signals are noted. */
function createKernel(looks: (() => ProcessEntry[])[]) {
  const clock = new FakeClock();
  const signals: string[] = [];
  let look = 0;
  const scanner = {
    helperPids: [],
    async fresh(): Promise<ProcessSnapshot> {
      await Promise.resolve();
      const entries = looks[Math.min(look++, looks.length - 1)]!();
      // Time passes while one looks; pauses end at once.
      queueMicrotask(() => clock.advance(60));
      const processes = new Map(entries.map((entry) => [entry.pid, entry]));
      return { bootTicks: 99_999, bootId: "", processes, markersRead: true };
    },
    signal(signal: string, pids: readonly number[]) {
      if (pids.length > 0) signals.push(`${signal} ${pids.join(" ")}`);
    },
  };
  const killer = new TreeKiller({
    scanner: scanner as unknown as ProcessScanner,
    clock,
    agentPid: 7,
    others: () => [],
    direct: { reach: "group", signal: () => Promise.resolve(void signals.push("direct")) },
  });
  const target = { processId: MARKER, leader: undefined };
  return { killer, clock, signals, target, looks: () => look };
}

/** Lets pauses pass until `work` is done. */
async function drive<T>(clock: FakeClock, work: Promise<T>): Promise<T> {
  let done = false;
  const watched = work.finally(() => done = true);
  watched.catch(() => {});
  while (!done) {
    await new Promise<void>((resolve) => queueMicrotask(resolve));
    clock.advance(1);
  }
  return await watched;
}

Deno.test("found, stopped, seen again, killed, gone", options, async () => {
  const { killer, clock, signals, target } = createKernel([
    () => [entry(20)],
    () => [entry(20, { state: "T" })],
    () => [],
  ]);
  await drive(clock, killer.kill(target, { graceMs: 0 }));
  assertEquals(signals, ["STOP -20 20", "KILL -20 20"]);
});

Deno.test(
  "what appears between two looks is stopped before anything is killed",
  options,
  async () => {
    const { killer, clock, signals, target } = createKernel([
      () => [entry(20)],
      () => [entry(20, { state: "T" }), entry(21)],
      () => [entry(20, { state: "T" }), entry(21, { state: "T" })],
      () => [],
    ]);
    await drive(clock, killer.kill(target, { graceMs: 0 }));
    assertEquals(signals[0], "STOP -20 20");
    assert(signals[1]!.startsWith("STOP ") && signals[1]!.endsWith(" 21"));
    assertEquals(signals.filter((line) => line.startsWith("KILL")), ["KILL -20 -21 20 21"]);
  },
);

Deno.test(
  "a pid that was reused between finding and killing goes on, and is not killed",
  options,
  async () => {
    const stranger = entry(21, { startTicks: 999, marker: undefined, session: 5, processGroup: 5 });
    const { killer, clock, signals, target } = createKernel([
      () => [entry(20), entry(21)],
      () => [entry(20, { state: "T" }), { ...stranger, state: "T" }],
      () => [stranger],
    ]);
    await drive(clock, killer.kill(target, { graceMs: 0 }));
    assert(signals.includes("CONT 21"));
    assert(!signals.some((line) => /^KILL.* 21\b/.test(line)));
  },
);

Deno.test(
  "a member that clears its environment and leaves while it is hunted stays a member",
  options,
  async () => {
    const { killer, clock, signals, target } = createKernel([
      () => [
        entry(20),
        entry(21, { parent: 20, session: 20, processGroup: 20, marker: undefined }),
      ],
      () => [entry(20, { state: "T" }), entry(21, { state: "T", marker: undefined })],
      () => [],
    ]);
    await drive(clock, killer.kill(target, { graceMs: 0 }));
    assert(signals.some((line) => /^KILL.* 21$/.test(line)));
  },
);

Deno.test(
  "with a grace: TERM and CONT to what was seen twice, KILL only after it",
  options,
  async () => {
    const { killer, clock, signals, target } = createKernel([
      () => [entry(20)],
      () => [entry(20, { state: "T" })],
      () => [entry(20)],
      () => [],
    ]);
    await drive(clock, killer.kill(target, { graceMs: 10_000 }));
    assertEquals(signals, ["STOP -20 20", "TERM 20", "CONT 20"]);
  },
);

Deno.test(
  "what does not go is named after the bound, and hunted on until given up",
  options,
  async () => {
    const { killer, clock, target } = createKernel([
      () => [entry(20, { state: "D", name: "n\nfs" })],
    ]);
    const before = clock.nowMs();
    const table = new AbortController();
    const killing = killer.kill(target, { graceMs: 0, giveUp: table.signal });
    const error = await assertRejects(() => drive(clock, killing), AgentError);
    assertEquals(error.kind, "deadline-exceeded");
    assert(error.message.includes("20 (n?fs, D)"), error.message);
    assert(clock.nowMs() - before >= KILL_BOUND_MS);
    table.abort();
    await new Promise<void>((resolve) => setTimeout(resolve, 0));
    assertEquals(clock.pending, 0);
  },
);

Deno.test(
  "without a look, the leader's group is killed directly, and it is tried again",
  options,
  async () => {
    let fails = 2;
    const { killer, clock, signals } = createKernel([
      () => {
        if (fails-- > 0) throw new Error("no helper");
        return [];
      },
    ]);
    const leader: KillLeader = {
      pid: 20,
      exitedAtMs: undefined,
      exited: new Promise(() => {}),
      signal: () => {},
    };
    await drive(clock, killer.kill({ processId: MARKER, leader }, { graceMs: 0 }));
    assertEquals(signals, ["direct", "direct"]);
  },
);

Deno.test(
  "the leader of an agent that is gone is known by pid, start and boot, or not at all",
  options,
  async () => {
    const bare = (startTicks: number, state = "S") =>
      entry(20, { marker: undefined, startTicks, state });
    const formerLeader = { leaderPid: 20, startTicks: 200, bootId: "" };
    for (
      const [startTicks, bootId, isKilled] of [
        [200, "", true],
        [201, "", false],
        [200, "another boot", false],
      ] as const
    ) {
      const { killer, clock, signals, target } = createKernel([
        () => [bare(startTicks)],
        () => [bare(startTicks, "T")],
        () => [],
      ]);
      const former = { ...target, formerLeader: { ...formerLeader, bootId } };
      await drive(clock, killer.kill(former, { graceMs: 0 }));
      assertEquals(signals, isKilled ? ["STOP -20 20", "KILL -20 20"] : []);
    }
  },
);
