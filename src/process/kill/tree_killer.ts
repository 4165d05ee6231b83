// Ends trees of processes: find, stop, look again, kill, until nothing is left.
// Must not know records or spools; how to see and to signal comes from the scanner.
import type { Clock } from "../../clock.ts";
import { AgentError } from "../../errors.ts";
import { Deadline } from "../deadline.ts";
import type { DirectSignals } from "./kill_reach.ts";
import type { ProcessScanner } from "./process_scanner.ts";
import { type ProcessEntry, type ProcessSnapshot, TICKS_PER_SECOND } from "./process_snapshot.ts";
import { membersOf, type TreeRoot, type TreeSurroundings } from "./process_tree.ts";

/** A tree that is to end. */
export interface KillTarget {
  readonly processId: string;
  /** Undefined where an agent that is gone had started it. */
  readonly leader: KillLeader | undefined;
}

/** The first process of a tree. */
export interface KillLeader {
  readonly pid: number;
  /** When the leader was reaped, on the clock's scale; undefined before. */
  readonly exitedAtMs: number | undefined;
  /** Resolves at that moment; never rejects. */
  readonly exited: Promise<unknown>;
  /** Signals the leader alone. */
  signal(signal: "SIGTERM" | "SIGKILL"): void;
}

/** Options of {@linkcode TreeKiller}. */
export interface TreeKillerOptions {
  readonly scanner: ProcessScanner;
  readonly clock: Clock;
  readonly agentPid: number;
  /** All processes whose trees are not to be touched by the kill of another one. */
  readonly others: () => Iterable<KillTarget>;
  /** What to do while there is no helper to be had. */
  readonly direct: DirectSignals;
}

/** How a kill is to go. */
export interface KillManner {
  /** Time between SIGTERM and SIGKILL; 0 = SIGKILL at once. */
  readonly graceMs: number;
  /** Once aborted, the grace is over. */
  readonly hurry?: AbortSignal;
  /** Once aborted, the kill is given up. */
  readonly giveUp?: AbortSignal;
}

/** How long a kill may take once SIGKILL is what is sent. */
export const KILL_BOUND_MS = 5_000;

/** Rounds of stopping after which running members are killed all the same. */
const MAX_FREEZE_ROUNDS = 50;

/** How long a look may take before the leader's group is killed without it. */
const SCAN_PATIENCE_MS = 1_500;

/** First and longest pause between two looks while processes go away. */
const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 50;

/** Pids with their start ticks: no other process has both. */
class Identities extends Map<number, number> {
  add({ pid, startTicks }: ProcessEntry): void {
    this.set(pid, startTicks);
  }

  holds({ pid, startTicks }: ProcessEntry): boolean {
    return this.get(pid) === startTicks;
  }
}

/** One kill of one tree. */
class Hunt {
  /** Found once: members for good, whatever their links say later. */
  readonly known = new Identities();
  /** Stopped by us and not let go since. */
  readonly stopped = new Identities();
  /** Sent a SIGKILL. */
  readonly killed = new Identities();
  /** What the last look has shown. */
  alive: readonly ProcessEntry[] = [];
  readonly target: KillTarget;

  constructor(target: KillTarget) {
    this.target = target;
  }

  /** The leader, until it is reaped. */
  get leader(): KillLeader | undefined {
    const { leader } = this.target;
    return leader?.exitedAtMs === undefined ? leader : undefined;
  }

  /** The leader's group, which nobody else can have while the leader is not reaped. */
  get group(): number[] {
    return this.leader === undefined ? [] : [-this.leader.pid];
  }
}

/** Kills trees; many at once share their looks. */
export class TreeKiller {
  readonly #options: TreeKillerOptions;

  constructor(options: TreeKillerOptions) {
    this.#options = options;
  }

  /**
   * Ends the tree of `target`; resolves once nothing of it is alive.
   * @throws AgentError `deadline-exceeded` naming what is alive {@linkcode KILL_BOUND_MS} after that
   */
  async kill(target: KillTarget, { graceMs, hurry, giveUp }: KillManner): Promise<void> {
    const hunt = new Hunt(target);
    if (graceMs > 0 && await this.#terminate(hunt, graceMs, hurry)) return;
    const bound = this.#deadline(KILL_BOUND_MS, giveUp);
    try {
      if (!await this.#exterminate(hunt, bound)) throw overdue(hunt);
    } finally {
      bound.cancel();
    }
  }

  /** Those of `targets` of which something is alive, at one look. */
  async findAlive<T extends KillTarget>(targets: readonly T[]): Promise<T[]> {
    const snapshot = await this.#options.scanner.fresh();
    return targets.filter((target) => this.#members(snapshot, new Hunt(target)).length > 0);
  }

  /** SIGTERM to all members. @returns whether all of them were gone in time */
  async #terminate(hunt: Hunt, graceMs: number, hurry?: AbortSignal): Promise<boolean> {
    const grace = this.#deadline(graceMs, hurry);
    try {
      const found = await this.#freeze(hunt, grace);
      if (found === undefined) return false;
      const pids = found.map(({ pid }) => pid);
      this.#signal("TERM", pids);
      // A stopped process acts on SIGTERM once it goes on.
      this.#signal("CONT", pids);
      hunt.stopped.clear();
      // For the pauses, see #exterminate.
      for (let pauseMs = FIRST_PAUSE_MS; found.length > 0; pauseMs *= 2) {
        await this.#pause(pauseMs, hunt, grace);
        if (grace.over) return false;
        const snapshot = await this.#look(grace);
        if (snapshot !== undefined && this.#members(snapshot, hunt).length === 0) break;
      }
      return true;
    } finally {
      grace.cancel();
    }
  }

  /** SIGKILL to all members, until there are none. @returns false when `bound` was over before */
  async #exterminate(hunt: Hunt, bound: Deadline): Promise<boolean> {
    // No event tells that somebody else's child has gone (Deno has no pidfd): looking again, with
    // pauses that grow, is the one way there is.
    for (let pauseMs = FIRST_PAUSE_MS; !bound.over; pauseMs *= 2) {
      const found = await this.#freeze(hunt, bound);
      if (found?.length === 0) return true;
      if (found !== undefined) {
        this.#signal("KILL", [...hunt.group, ...found.map(({ pid }) => pid)]);
        for (const entry of found) hunt.killed.add(entry);
      } else if (hunt.leader !== undefined) {
        // A kill without a look makes room: for a fork of the helper, or for its start.
        await this.#options.direct.signal(hunt.leader, "SIGKILL");
      }
      await this.#pause(pauseMs, hunt, bound);
    }
    return false;
  }

  /**
   * Stops all members, so that none can fork, exit or be replaced unseen, and looks again until there
   * is none that was not seen before. What turns out to be another process by now is let go.
   * @returns the members, each of which was there in two looks; undefined without a look in time
   */
  async #freeze(hunt: Hunt, deadline: Deadline): Promise<readonly ProcessEntry[] | undefined> {
    for (let round = 0; !deadline.over; round++) {
      const snapshot = await this.#look(deadline);
      if (snapshot === undefined) return undefined;
      const members = this.#members(snapshot, hunt);
      this.#letGo(snapshot, members, hunt);
      const unseen = members.filter((entry) => !hunt.stopped.holds(entry));
      // Where a signal has not arrived yet, a fork may be under way.
      const moving = members.filter((entry) =>
        "RS".includes(entry.state) && !hunt.killed.holds(entry)
      );
      if (unseen.length === 0 && (moving.length === 0 || round > 1)) return members;
      if (round >= MAX_FREEZE_ROUNDS) return members;
      for (const entry of unseen) {
        hunt.known.add(entry);
        hunt.stopped.add(entry);
      }
      // A signal to a group is one step for the kernel: no fork in the group gets past it.
      const pids = new Set([...unseen, ...moving].map(({ pid }) => pid));
      this.#signal("STOP", [...hunt.group, ...pids]);
    }
    return undefined;
  }

  /** Processes that were stopped in the place of a member that had just gone go on. */
  #letGo(snapshot: ProcessSnapshot, members: readonly ProcessEntry[], hunt: Hunt): void {
    const memberPids = new Set(members.map(({ pid }) => pid));
    const wrong: number[] = [];
    for (const [pid, startTicks] of hunt.stopped) {
      const now = snapshot.processes.get(pid);
      if (now?.startTicks === startTicks) continue;
      hunt.stopped.delete(pid);
      if (now !== undefined && !memberPids.has(pid)) wrong.push(pid);
    }
    this.#signal("CONT", wrong);
  }

  #members(snapshot: ProcessSnapshot, hunt: Hunt): ProcessEntry[] {
    const members = membersOf(snapshot, this.#rootOf(hunt, snapshot), this.#surroundings(hunt));
    hunt.alive = members;
    return members;
  }

  #surroundings({ target, known }: Hunt): TreeSurroundings {
    const { agentPid, scanner, others } = this.#options;
    const otherMarkers = new Set<string>();
    const otherLeaders = new Set<number>();
    for (const { processId, leader } of others()) {
      if (processId === target.processId) continue;
      otherMarkers.add(processId);
      if (leader !== undefined && leader.exitedAtMs === undefined) otherLeaders.add(leader.pid);
    }
    return {
      excluded: new Set([1, agentPid, ...scanner.helperPids]),
      known,
      otherMarkers,
      otherLeaders,
    };
  }

  #rootOf({ target: { processId, leader } }: Hunt, snapshot: ProcessSnapshot): TreeRoot {
    const root = { marker: processId, leaderPid: leader?.pid };
    if (leader?.exitedAtMs === undefined) return { ...root, leaderExitTicks: undefined };
    const sinceExitMs = this.#options.clock.nowMs() - leader.exitedAtMs;
    const sinceExitTicks = sinceExitMs * TICKS_PER_SECOND / 1000;
    return { ...root, leaderExitTicks: snapshot.bootTicks - sinceExitTicks };
  }

  /** One look, or undefined when there is none to be had (now). */
  async #look(deadline: Deadline): Promise<ProcessSnapshot | undefined> {
    const patience = this.#deadline(SCAN_PATIENCE_MS, deadline.signal);
    try {
      return await Promise.race([this.#options.scanner.fresh(), patience.passed]);
    } catch {
      return undefined;
    } finally {
      patience.cancel();
    }
  }

  #signal(signal: "STOP" | "CONT" | "TERM" | "KILL", pids: readonly number[]): void {
    try {
      this.#options.scanner.signal(signal, pids);
    } catch {
      // There is no helper to be had now: the next look finds the same, and what to do about it.
    }
  }

  /** Waits a little, or until the leader is gone if that is sooner. */
  async #pause(pauseMs: number, hunt: Hunt, deadline: Deadline): Promise<void> {
    const pause = this.#deadline(Math.min(pauseMs, LONGEST_PAUSE_MS), deadline.signal);
    const { leader } = hunt;
    await Promise.race(leader === undefined ? [pause.passed] : [pause.passed, leader.exited]);
    pause.cancel();
  }

  #deadline(delayMs: number, parent?: AbortSignal): Deadline {
    return new Deadline(this.#options.clock, delayMs, parent);
  }
}

/** At most so many are named. */
const MAX_NAMED = 10;

function overdue({ target, alive }: Hunt): AgentError {
  const named = alive.slice(0, MAX_NAMED).map(({ pid, name, state }) =>
    `${pid} (${name.replaceAll(/[^ -~]/g, "?")}, ${state})`
  );
  const more = alive.length > MAX_NAMED ? ` and ${alive.length - MAX_NAMED} more` : "";
  const what = named.length === 0
    ? "its processes could not be looked at"
    : named.join(", ") + more;
  return new AgentError(
    "deadline-exceeded",
    `process "${target.processId}" is not gone ${
      KILL_BOUND_MS / 1000
    } s after SIGKILL; alive: ${what}`,
  );
}
