// Ends trees of processes: find, stop, look again, kill, until nothing is left.
// Must not know records or spools; how to see and to signal comes from the scanner.
import type { Clock } from "../../clock.ts";
import { Deadline } from "../deadline.ts";
import { Hunt, type KillTarget } from "./hunt.ts";
import type { DirectSignals } from "./kill_reach.ts";
import type { ProcessScanner } from "./process_scanner.ts";
import { type ProcessEntry, type ProcessSnapshot, TICKS_PER_SECOND } from "./process_snapshot.ts";
import { membersOf, type TreeRoot, type TreeSurroundings, wholeGroups } from "./process_tree.ts";

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

/** How long a kill goes on after its bound, so that no tree is left stopped half-way. */
const GO_ON_MS = 60_000;

/** Rounds of stopping after which running members are killed all the same. */
const MAX_FREEZE_ROUNDS = 50;

/** How long a look may take before the leader's group is killed without it. */
const SCAN_PATIENCE_MS = 1_500;

/** First and longest pause between two looks while processes go away. */
const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 50;

/** Kills trees; many at once share their looks. */
export class TreeKiller {
  readonly #options: TreeKillerOptions;
  /** Kills that go on although their bound is over. */
  readonly #goingOn = new Map<KillTarget, Promise<unknown>>();

  constructor(options: TreeKillerOptions) {
    this.#options = options;
  }

  /**
   * Ends the tree of `target`; resolves once nothing of it is alive.
   * @throws AgentError `deadline-exceeded` naming what is alive {@linkcode KILL_BOUND_MS} after that; the
   * kill goes on
   */
  async kill(target: KillTarget, { graceMs, hurry, giveUp }: KillManner): Promise<void> {
    const hunt = new Hunt(target);
    if (graceMs > 0 && await this.#terminate(hunt, graceMs, hurry)) return;
    const bound = this.#deadline(KILL_BOUND_MS, giveUp);
    try {
      if (await this.#exterminate(hunt, bound)) return;
    } finally {
      bound.cancel();
    }
    this.#goOn(hunt, giveUp);
    throw hunt.overdue(KILL_BOUND_MS);
  }

  /** Nobody waits for this any more, and one of it for each tree is enough. */
  #goOn(hunt: Hunt, giveUp?: AbortSignal): void {
    const { target } = hunt;
    if (this.#goingOn.has(target)) return;
    const end = this.#deadline(GO_ON_MS, giveUp);
    const work = this.#exterminate(hunt, end).finally(() => {
      end.cancel();
      this.#goingOn.delete(target);
    });
    this.#goingOn.set(target, work);
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
        const snapshot = await this.#look(hunt, grace);
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
        // In a group with a stopped member, which cannot go away, a fork that was missed is hit as well.
        const groups = found.filter(({ state, processGroup }) =>
          state === "T" && hunt.stoppedGroups.has(processGroup)
        ).map(({ processGroup }) => -processGroup);
        this.#signal("KILL", [...new Set(groups), ...found.map(({ pid }) => pid)]);
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
      const snapshot = await this.#look(hunt, deadline);
      if (snapshot === undefined) return undefined;
      const members = this.#members(snapshot, hunt);
      this.#signal("CONT", hunt.takeWronglyStopped(snapshot, members));
      const unseen = members.filter((entry) => !hunt.stopped.holds(entry));
      // Where a signal has not arrived yet, a fork may be under way.
      const moving = members.filter((entry) =>
        "RS".includes(entry.state) && !hunt.killed.holds(entry)
      );
      if (unseen.length === 0 && (moving.length === 0 || round > 1)) return members;
      if (round >= MAX_FREEZE_ROUNDS) return members;
      // A signal to a group is one step for the kernel: no fork in the group gets past it.
      const groups = wholeGroups(snapshot, members);
      hunt.noteStopped(unseen, groups);
      const pids = new Set([...unseen, ...moving].map(({ pid }) => pid));
      this.#signal("STOP", [...groups.map((group) => -group), ...pids]);
    }
    return undefined;
  }

  #members(snapshot: ProcessSnapshot, hunt: Hunt): ProcessEntry[] {
    hunt.recall(snapshot);
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

  /**
   * One look, or undefined when there is none to be had (now). One that takes long is waited for again by
   * the next call: on a machine so busy that every look takes long, a new one each time would never end.
   */
  async #look(hunt: Hunt, deadline: Deadline): Promise<ProcessSnapshot | undefined> {
    const look = hunt.look ??= this.#options.scanner.fresh();
    const patience = this.#deadline(SCAN_PATIENCE_MS, deadline.signal);
    try {
      const snapshot = await Promise.race([look, patience.passed]);
      if (snapshot !== undefined) hunt.look = undefined;
      return snapshot;
    } catch {
      hunt.look = undefined;
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

  /** Waits for the leader to go, as long as it is there, but not for long; a little otherwise. */
  async #pause(pauseMs: number, { leader }: Hunt, deadline: Deadline): Promise<void> {
    const mostMs = leader === undefined ? Math.min(pauseMs, LONGEST_PAUSE_MS) : LONGEST_PAUSE_MS;
    const pause = this.#deadline(mostMs, deadline.signal);
    await Promise.race(leader === undefined ? [pause.passed] : [pause.passed, leader.exited]);
    pause.cancel();
  }

  #deadline(delayMs: number, parent?: AbortSignal): Deadline {
    return new Deadline(this.#options.clock, delayMs, parent);
  }
}
