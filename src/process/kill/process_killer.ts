// The kill as the table asks for it: one at a time for each process, as far as the policy lets it reach.
// Must not know records or spools.
import type { Clock } from "../../clock.ts";
import { AgentError } from "../../errors.ts";
import { type Cgroups, openCgroups } from "../cgroup/cgroups.ts";
import type { Logger } from "../../log.ts";
import { Deadline } from "../deadline.ts";
import { spawnShellHelper } from "../deno_spawner.ts";
import {
  type DirectSignals,
  findDirectSignals,
  type KillReach,
  testKillReach,
} from "./kill_reach.ts";
import { ProcessScanner } from "./process_scanner.ts";
import type { KillTarget } from "./hunt.ts";
import { KILL_BOUND_MS, type KillManner, TreeKiller } from "./tree_killer.ts";

/** Options of {@linkcode openProcessKiller}. */
export interface ProcessKillerOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Name of the variable that marks the processes of a tree. */
  readonly marker: string;
  /** All processes whose trees are not to be touched by the kill of another one. */
  readonly others: () => Iterable<KillTarget>;
  /** Where the helper makes a FIFO: the runtime cannot. */
  readonly fifoPath: string;
  /** Directory of cgroups, one for each process. */
  readonly cgroupPath?: string | undefined;
}

/** Score that makes a child go before the agent when memory runs out. */
const CHILD_OOM_SCORE = 500;

interface RunningKill {
  readonly done: Promise<void>;
  readonly hurry: AbortController;
}

/** Kills trees of processes. */
export class ProcessKiller implements AsyncDisposable {
  readonly reach: KillReach;
  /** Why the reach is less than the tree. */
  readonly reason: string | undefined;
  readonly #clock: Clock;
  readonly #scanner: ProcessScanner;
  readonly #trees: TreeKiller;
  readonly #direct: DirectSignals;
  readonly #cgroups: Cgroups | undefined;
  readonly #running = new Map<KillTarget, RunningKill>();
  readonly #giveUp = new AbortController();

  /** For {@linkcode openProcessKiller}. */
  constructor(
    { clock, others }: ProcessKillerOptions,
    scanner: ProcessScanner,
    direct: DirectSignals,
    { reach, reason }: { reach: KillReach; reason?: string },
    cgroups?: Cgroups,
  ) {
    this.reach = cgroups === undefined ? reach : "cgroup";
    this.reason = reason;
    this.#clock = clock;
    this.#scanner = scanner;
    this.#direct = direct;
    this.#cgroups = cgroups;
    this.#trees = new TreeKiller({ scanner, clock, agentPid: Deno.pid, others, direct });
  }

  /** Whether all that can be told to be a descendant is reached, at least. */
  get reachesTree(): boolean {
    return this.reach === "tree" || this.reach === "cgroup";
  }

  /** Runs `spawn` so that what it spawns is within the reach. @throws what `spawn` throws, AgentError */
  async within<T>(processId: string, spawn: () => Promise<T>): Promise<T> {
    return await (this.#cgroups?.within(processId, spawn) ?? spawn());
  }

  /** To be called when a process is final, and when it is forgotten. */
  release(processId: string): void {
    this.#cgroups?.remove(processId);
  }

  /** To be called once what an earlier agent has left running is killed. */
  async sweep(): Promise<void> {
    await this.#cgroups?.sweep();
  }

  /**
   * Ends the tree of `target`, as far as the reach goes. A kill that is under way is joined, and hurried
   * if this one has no grace.
   * @throws AgentError `deadline-exceeded` naming what is still alive
   */
  async kill(target: KillTarget, graceMs: number): Promise<void> {
    let running = this.#running.get(target);
    if (running === undefined) {
      const hurry = new AbortController();
      const manner = { graceMs, hurry: hurry.signal, giveUp: this.#giveUp.signal };
      const done = this.reachesTree
        ? this.#killTree(target, manner)
        : this.#killDirectly(target, manner);
      running = { done, hurry };
      this.#running.set(target, running);
      const forget = () => this.#running.delete(target);
      done.then(forget, forget);
    } else if (graceMs === 0) running.hurry.abort();
    await running.done;
  }

  /** SIGKILL now for all that is being given a grace. */
  hurryAll(): void {
    for (const { hurry } of this.#running.values()) hurry.abort();
  }

  /** Those of `targets` of which something is alive, as far as that can be seen. */
  async findAlive<T extends KillTarget>(targets: readonly T[]): Promise<T[]> {
    if (!this.reachesTree || targets.length === 0) return [];
    const inTrees = await this.#trees.findAlive(targets);
    const inCgroups = await this.#cgroups?.alive();
    return targets.filter((target) => inTrees.includes(target) || inCgroups?.has(target.processId));
  }

  /** To be called for each new leader. `recordPath`: where it is written down who it is. */
  adopt(pid: number, recordPath: string): void {
    if (this.reachesTree) this.#scanner.adopt(pid, CHILD_OOM_SCORE, recordPath);
  }

  /** Gives up what is under way, and ends the helper. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#giveUp.abort();
    this.hurryAll();
    await this.#scanner.close();
    await Promise.allSettled([...this.#running.values()].map(({ done }) => done));
    await this.#cgroups?.[Symbol.asyncDispose]();
  }

  /**
   * A cgroup is killed in one step, which no fork gets past, and the tree for what is not in it (any more).
   * What only the cgroup reaches gets no SIGTERM: its pids would have to be read, and could be others' then.
   */
  async #killTree(target: KillTarget, manner: KillManner): Promise<void> {
    const cgroups = this.#cgroups;
    if (cgroups === undefined) return await this.#trees.kill(target, manner);
    const { processId } = target;
    if (manner.graceMs === 0) cgroups.strike(processId);
    await this.#trees.kill(target, manner);
    const alive = await cgroups.kill(processId, KILL_BOUND_MS, manner.giveUp);
    if (alive.length > 0) throw overdue(processId, alive);
  }

  /** What is left without a helper: signals to the leader's group, and its exit. */
  async #killDirectly({ processId, leader }: KillTarget, manner: KillManner): Promise<void> {
    if (leader === undefined || leader.exitedAtMs !== undefined) return;
    if (manner.graceMs > 0) {
      await this.#direct.signal(leader, "SIGTERM");
      const grace = new Deadline(this.#clock, manner.graceMs, manner.hurry);
      await Promise.race([leader.exited, grace.passed]);
      grace.cancel();
      if (leader.exitedAtMs !== undefined) return;
    }
    await this.#direct.signal(leader, "SIGKILL");
    const bound = new Deadline(this.#clock, KILL_BOUND_MS, manner.giveUp);
    await Promise.race([leader.exited, bound.passed]);
    bound.cancel();
    if (leader.exitedAtMs !== undefined) return;
    throw overdue(processId, [String(leader.pid)]);
  }
}

function overdue(processId: string, alive: readonly string[]): AgentError {
  return new AgentError(
    "deadline-exceeded",
    `process "${processId}" is not gone ${KILL_BOUND_MS / 1000} s after SIGKILL; alive: ${
      alive.join(", ")
    }`,
  );
}

/**
 * Starts the helper, if the policy allows one, and finds out how far a kill reaches.
 * @throws AgentError `failed-precondition` when the directory of cgroups cannot be used
 */
export async function openProcessKiller(options: ProcessKillerOptions): Promise<ProcessKiller> {
  const { log, marker, clock, cgroupPath } = options;
  const ownPid = Deno.pid;
  const scanner = new ProcessScanner({ spawnHelper: spawnShellHelper, marker, ownPid, log });
  try {
    scanner.makeFifo(options.fifoPath);
  } catch {
    // No helper: found out in a moment.
  }
  const direct = await findDirectSignals();
  const tested = await testKillReach(scanner, ownPid, direct, clock);
  if (cgroupPath === undefined) return new ProcessKiller(options, scanner, direct, tested);
  try {
    if (tested.reach !== "tree") {
      throw new AgentError(
        "failed-precondition",
        `cannot use --cgroup "${cgroupPath}": ${tested.reason}`,
      );
    }
    const cgroups = await openCgroups({
      path: cgroupPath,
      agentPid: ownPid,
      spawnHelper: (script, cwd) => spawnShellHelper(script, marker, cwd),
      clock,
      log,
    });
    return new ProcessKiller(options, scanner, direct, tested, cgroups);
  } catch (error) {
    await scanner.close();
    throw error;
  }
}
