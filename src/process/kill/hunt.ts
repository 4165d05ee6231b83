// What one kill knows of its tree: who was found, stopped and killed so far.
// Must not signal or look.
import { AgentError } from "../../errors.ts";
import type { ProcessEntry, ProcessSnapshot } from "./process_snapshot.ts";

/** A tree that is to end. */
export interface KillTarget {
  readonly processId: string;
  /** Undefined where an agent that is gone had started it. */
  readonly leader: KillLeader | undefined;
  /** Who that was, where it was written down. */
  readonly formerLeader?: FormerLeader | undefined;
}

/** The leader of an agent that is gone: no other process of this boot has the same pid and ticks. */
export interface FormerLeader {
  readonly leaderPid: number;
  readonly startTicks: number;
  readonly bootId: string;
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

/** At most so many are named in an error. */
const MAX_NAMED = 10;

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
export class Hunt {
  /** Found once: members for good, whatever their links say later. */
  readonly known = new Identities();
  /** Stopped by us and not let go since. */
  readonly stopped = new Identities();
  /** Groups that were stopped as such. */
  readonly stoppedGroups = new Set<number>();
  /** Sent a SIGKILL. */
  readonly killed = new Identities();
  /** A look that was asked for and has not been taken yet. */
  look: Promise<ProcessSnapshot> | undefined;
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

  /** Takes up what was written down by an agent that is gone, if this is the same boot still. */
  recall({ bootId }: ProcessSnapshot): void {
    const { formerLeader } = this.target;
    if (formerLeader === undefined || formerLeader.bootId !== bootId) return;
    this.known.set(formerLeader.leaderPid, formerLeader.startTicks);
  }

  /** Notes that `entries` are being stopped, and `groups` as such. */
  noteStopped(entries: readonly ProcessEntry[], groups: readonly number[]): void {
    for (const entry of entries) {
      this.known.add(entry);
      this.stopped.add(entry);
    }
    for (const group of groups) this.stoppedGroups.add(group);
  }

  /**
   * What was stopped in the place of a member that had just gone, and has to go on: pids, and groups as
   * negative numbers.
   */
  takeWronglyStopped(snapshot: ProcessSnapshot, members: readonly ProcessEntry[]): number[] {
    const memberPids = new Set(members.map(({ pid }) => pid));
    const wrong: number[] = [];
    for (const [pid, startTicks] of this.stopped) {
      const now = snapshot.processes.get(pid);
      if (now?.startTicks === startTicks) continue;
      this.stopped.delete(pid);
      if (now !== undefined && !memberPids.has(pid)) wrong.push(pid);
    }
    for (const { pid, processGroup, alive } of snapshot.processes.values()) {
      if (!alive || memberPids.has(pid) || !this.stoppedGroups.has(processGroup)) continue;
      this.stoppedGroups.delete(processGroup);
      wrong.push(-processGroup);
    }
    return wrong;
  }

  /** The error for a tree that is not gone `boundMs` after the kill. */
  overdue(boundMs: number): AgentError {
    const named = this.alive.slice(0, MAX_NAMED).map(({ pid, name, state }) =>
      `${pid} (${name.replaceAll(/[^ -~]/g, "?")}, ${state})`
    );
    if (this.alive.length > MAX_NAMED) named.push(`and ${this.alive.length - MAX_NAMED} more`);
    const what = named.length === 0 ? "its processes could not be looked at" : named.join(", ");
    return new AgentError(
      "deadline-exceeded",
      `process "${this.target.processId}" is not gone ${
        boundMs / 1000
      } s after SIGKILL; alive: ${what}`,
    );
  }
}
