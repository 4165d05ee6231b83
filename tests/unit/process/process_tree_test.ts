import { assertEquals } from "@std/assert";
import type { ProcessEntry, ProcessSnapshot } from "../../../src/process/kill/process_snapshot.ts";
import {
  membersOf,
  type TreeRoot,
  type TreeSurroundings,
  wholeGroups,
} from "../../../src/process/kill/process_tree.ts";

const options = { permissions: "none" } as const;
const OURS = "a".repeat(32);
const THEIRS = "b".repeat(32);

type Fields = Partial<ProcessEntry> & { pid: number };

function snapshot(...entries: Fields[]): ProcessSnapshot {
  const processes = entries.map((fields): ProcessEntry => ({
    name: "x",
    state: "S",
    parent: 1,
    processGroup: fields.session ?? 50,
    session: 50,
    startTicks: 1_000,
    alive: true,
    marker: undefined,
    ...fields,
  }));
  return {
    bootTicks: 9_000,
    bootId: "",
    processes: new Map(processes.map((entry) => [entry.pid, entry])),
    markersRead: true,
  };
}

function find(
  seen: ProcessSnapshot,
  root: Partial<TreeRoot> = {},
  surroundings: Partial<TreeSurroundings> = {},
): number[] {
  const members = membersOf(
    seen,
    { marker: OURS, leaderPid: 100, leaderExitTicks: undefined, ...root },
    {
      excluded: new Set([1, 10]),
      otherMarkers: new Set([THEIRS]),
      otherLeaders: new Set(),
      known: new Map(),
      ...surroundings,
    },
  );
  return members.map(({ pid }) => pid).sort((a, b) => a - b);
}

Deno.test("found by marker: setsid'd, re-parented", options, () => {
  const seen = snapshot(
    { pid: 100, parent: 10, session: 100, marker: OURS },
    { pid: 101, parent: 1, session: 101, marker: OURS },
    { pid: 200, parent: 1, session: 200 },
  );
  assertEquals(find(seen), [100, 101]);
});

Deno.test("found by parent links and by session without a marker", options, () => {
  const seen = snapshot(
    { pid: 100, parent: 10, session: 100 },
    { pid: 101, parent: 100, session: 101 },
    { pid: 102, parent: 101, session: 101 },
    { pid: 103, parent: 1, session: 100 },
    // Left in a session that a member has made.
    { pid: 104, parent: 1, session: 101 },
    { pid: 105, parent: 1, session: 105 },
  );
  assertEquals(find(seen), [100, 101, 102, 103, 104]);
});

Deno.test("the agent, its helper and init are never members", options, () => {
  const seen = snapshot(
    { pid: 1, parent: 0, session: 1, marker: OURS },
    { pid: 10, parent: 100, session: 100, marker: OURS },
    { pid: 11, parent: 10, session: 11 },
  );
  assertEquals(find(seen), []);
});

Deno.test("the dead are no members, their children are", options, () => {
  const seen = snapshot(
    { pid: 100, parent: 10, session: 100, state: "Z", alive: false },
    { pid: 101, parent: 100, session: 101 },
  );
  assertEquals(find(seen), [101]);
});

Deno.test(
  "another process's marker wins over links, ours wins over another's session",
  options,
  () => {
    const seen = snapshot(
      { pid: 100, parent: 10, session: 100, marker: OURS },
      { pid: 101, parent: 100, session: 100, marker: THEIRS },
      { pid: 102, parent: 101, session: 102, marker: THEIRS },
      { pid: 103, parent: 1, session: 300, marker: OURS },
      { pid: 300, parent: 100, session: 300 },
    );
    assertEquals(find(seen, {}, { otherLeaders: new Set([300]) }), [100, 103]);
    // A marker of nobody we know, as an agent inside of the sandbox gives, is no reason to stop.
    assertEquals(find(seen, {}, { otherMarkers: new Set() }), [100, 101, 102, 103, 300]);
  },
);

Deno.test("once the leader is reaped, its pid may be another's", options, () => {
  const exited = { leaderExitTicks: 5_000 };
  const reused = snapshot(
    { pid: 100, parent: 1, session: 100, startTicks: 6_000 },
    { pid: 101, parent: 100, session: 100, startTicks: 6_001 },
  );
  assertEquals(find(reused, exited), []);
  const reusedAndLeft = snapshot({ pid: 101, parent: 1, session: 100, startTicks: 6_001 });
  assertEquals(find(reusedAndLeft, exited), []);
});

Deno.test("the session of a reaped leader is ours if a member is older or marked", options, () => {
  const exited = { leaderExitTicks: 5_000 };
  const older = snapshot(
    { pid: 101, parent: 1, session: 100, startTicks: 4_000 },
    { pid: 102, parent: 1, session: 100, startTicks: 7_000 },
  );
  assertEquals(find(older, exited), [101, 102]);
  const marked = snapshot(
    { pid: 101, parent: 1, session: 100, startTicks: 6_000, marker: OURS },
    { pid: 102, parent: 1, session: 100, startTicks: 7_000 },
  );
  assertEquals(find(marked, exited), [101, 102]);
});

Deno.test("what was found once stays a member, unless its pid is another's by now", options, () => {
  const seen = snapshot({ pid: 101, session: 101, startTicks: 4_000 });
  assertEquals(find(seen, {}, { known: new Map([[101, 4_000]]) }), [101]);
  assertEquals(find(seen, {}, { known: new Map([[101, 3_000]]) }), []);
});

Deno.test(
  "a group is signalled as such only if all of it is ours, and never group 0",
  options,
  () => {
    const seen = snapshot(
      { pid: 100, processGroup: 100, session: 100, marker: OURS },
      { pid: 101, processGroup: 101, session: 100, marker: OURS },
      { pid: 102, processGroup: 101, session: 100, marker: THEIRS },
      { pid: 103, processGroup: 0, session: 0, marker: OURS },
    );
    const members = [100, 101, 103].map((pid) => seen.processes.get(pid)!);
    assertEquals(wholeGroups(seen, members), [100]);
  },
);
