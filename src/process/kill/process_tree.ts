// Which processes belong to which tree: marker, session and parent links.
// Pure: must not touch the OS.
import { type ProcessEntry, type ProcessSnapshot, TICKS_PER_SECOND } from "./process_snapshot.ts";

/** A tree, named by its marker and its leader. */
export interface TreeRoot {
  readonly marker: string;
  /** Undefined where an agent that is gone had started it. */
  readonly leaderPid: number | undefined;
  /**
   * Undefined while the leader has not been reaped: nobody else can have its pid so long. After that,
   * its exit in clock ticks since boot.
   */
  readonly leaderExitTicks: number | undefined;
}

/** What else is known while looking for one tree. */
export interface TreeSurroundings {
  /** Never part of a tree: the agent, its helper, init. */
  readonly excluded: ReadonlySet<number>;
  /** Markers of the other processes of this agent. */
  readonly otherMarkers: ReadonlySet<string>;
  /** Leaders of other processes of this agent that are not reaped. */
  readonly otherLeaders: ReadonlySet<number>;
  /** Processes found before: pid to start ticks. They stay members whatever their links say now. */
  readonly known: ReadonlyMap<number, number>;
}

/** How much later than the leader's exit, as computed, a member may have started. */
const EXIT_TOLERANCE_TICKS = TICKS_PER_SECOND / 10;

/** All live members of the tree of `root`. */
export function membersOf(
  snapshot: ProcessSnapshot,
  root: TreeRoot,
  surroundings: TreeSurroundings,
): ProcessEntry[] {
  const { processes } = snapshot;
  const { excluded, known } = surroundings;
  const byParent = Map.groupBy(processes.values(), ({ parent }) => parent);
  const bySession = Map.groupBy(processes.values(), ({ session }) => session);
  const members = new Set<ProcessEntry>();
  const add = (entry: ProcessEntry) => {
    if (!excluded.has(entry.pid) && !isOthers(entry, root, surroundings)) members.add(entry);
  };
  for (const entry of processes.values()) {
    const isKnown = known.get(entry.pid) === entry.startTicks;
    if (isKnown || entry.marker === root.marker) add(entry);
  }
  for (const entry of leaderSession(bySession, root)) add(entry);
  // A Set may grow while it is walked through: what is added is visited, too.
  for (const member of members) {
    for (const child of byParent.get(member.pid) ?? []) add(child);
    // A session can only be made, never entered: what is in a member's session descends from it.
    if (member.pid === member.session) { for (const peer of bySession.get(member.pid)!) add(peer); }
  }
  return [...members].filter(({ alive }) => alive);
}

/** Whether `entry` belongs to another process of this agent: its marker says it, or else its session. */
function isOthers(entry: ProcessEntry, root: TreeRoot, surroundings: TreeSurroundings): boolean {
  const { marker } = entry;
  if (marker === root.marker) return false;
  if (marker !== undefined && surroundings.otherMarkers.has(marker)) return true;
  return surroundings.otherLeaders.has(entry.session);
}

/** The members of the session that the leader has made, as far as it is certain that they are. */
function leaderSession(
  bySession: ReadonlyMap<number, readonly ProcessEntry[]>,
  { leaderPid, leaderExitTicks, marker }: TreeRoot,
): readonly ProcessEntry[] {
  if (leaderPid === undefined) return [];
  const session = bySession.get(leaderPid) ?? [];
  if (leaderExitTicks === undefined) return session;
  // The kernel gives out a pid again only when its session is empty. So this session is ours if there
  // is a member from before the leader's exit, or one that carries our marker, and another's if its
  // leader is there: ours has been reaped.
  if (session.some(({ pid }) => pid === leaderPid)) return [];
  const isOurs = session.some((entry) =>
    entry.marker === marker || entry.startTicks <= leaderExitTicks + EXIT_TOLERANCE_TICKS
  );
  return isOurs ? session : [];
}

/** Process groups all of whose live processes are `members`: one signal reaches them in one step. */
export function wholeGroups(snapshot: ProcessSnapshot, members: readonly ProcessEntry[]): number[] {
  const groups = new Set(members.map(({ processGroup }) => processGroup));
  const ours = new Set(members);
  for (const entry of snapshot.processes.values()) {
    if (entry.alive && !ours.has(entry)) groups.delete(entry.processGroup);
  }
  // 0 is what a group outside of this pid namespace looks like, and to kill(2) it means the caller's own.
  return [...groups].filter((group) => group > 1);
}
