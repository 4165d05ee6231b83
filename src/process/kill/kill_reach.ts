// How far a kill reaches under the agent's policy, and what is left to do without a helper.
// Must not know trees; found out once, at start.
import type { Clock } from "../../clock.ts";
import { Deadline } from "../deadline.ts";
import { signalGroupByProgram } from "../deno_spawner.ts";
import type { ProcessScanner } from "./process_scanner.ts";

/**
 * `cgroup`: all descendants, whatever they do. `tree`: all that can be told to be descendants. `group`:
 * those that stayed in the leader's process group. `child`: the leader alone.
 */
export type KillReach = "cgroup" | "tree" | "group" | "child";

/** Signals that a leader gets without a helper. */
export type DirectSignal = "SIGTERM" | "SIGKILL";

/** Whom to signal without a helper. Must not have been reaped. */
export interface DirectLeader {
  readonly pid: number;
  signal(signal: DirectSignal): void;
}

/** What may be done without a helper, and how far that goes. */
export interface DirectSignals {
  readonly reach: "group" | "child";
  /** Never rejects. */
  signal(leader: DirectLeader, signal: DirectSignal): Promise<void>;
}

/** Finds out what the policy allows without a helper. Deno.kill needs all of run, the others a name. */
export async function findDirectSignals(): Promise<DirectSignals> {
  const mayRun = async (command?: string) => {
    const query = { name: "run" as const, ...(command === undefined ? {} : { command }) };
    return (await Deno.permissions.query(query)).state === "granted";
  };
  if (await mayRun()) return directSignals("group", (pid, signal) => Deno.kill(-pid, signal));
  if (await mayRun("kill")) return directSignals("group", signalGroupByProgram);
  return directSignals("child", () => {});
}

function directSignals(
  reach: "group" | "child",
  signalGroup: (pid: number, signal: DirectSignal) => void | Promise<void>,
): DirectSignals {
  return {
    reach,
    async signal(leader, signal) {
      try {
        await signalGroup(leader.pid, signal);
      } catch {
        // The group has gone, or there is no descriptor left for the program.
      }
      leader.signal(signal);
    },
  };
}

/** A look that takes longer at start will not do for a kill. */
const TEST_PATIENCE_MS = 5_000;

/**
 * Looks at all processes once. Uses a timer on the way, and so makes the runtime load what it needs for
 * timers: it would panic when descriptors have run out by then.
 * @returns the reach, and why it is less than the whole tree
 */
export async function testKillReach(
  scanner: ProcessScanner,
  ownPid: number,
  direct: DirectSignals,
  clock: Clock,
): Promise<{ reach: KillReach; reason?: string }> {
  const patience = new Deadline(clock, TEST_PATIENCE_MS);
  try {
    const snapshot = await Promise.race([scanner.fresh(), patience.passed]);
    if (snapshot?.processes.has(ownPid) && snapshot.markersRead) return { reach: "tree" };
    return { reach: direct.reach, reason: "the helper cannot see the processes in /proc" };
  } catch (error) {
    const reason = error instanceof Deno.errors.NotCapable
      ? "--allow-run does not list sh"
      : error instanceof Error
      ? error.message
      : String(error);
    return { reach: direct.reach, reason };
  } finally {
    patience.cancel();
  }
}
