// The kill as the table asks for it: one at a time for each process, as far as the policy lets it reach.
// Must not know records or spools.
import type { Clock } from "../../clock.ts";
import { AgentError } from "../../errors.ts";
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
  readonly #running = new Map<KillTarget, RunningKill>();
  readonly #giveUp = new AbortController();

  /** For {@linkcode openProcessKiller}. */
  constructor(
    { clock, others }: ProcessKillerOptions,
    scanner: ProcessScanner,
    direct: DirectSignals,
    { reach, reason }: { reach: KillReach; reason?: string },
  ) {
    this.reach = reach;
    this.reason = reason;
    this.#clock = clock;
    this.#scanner = scanner;
    this.#direct = direct;
    this.#trees = new TreeKiller({ scanner, clock, agentPid: Deno.pid, others, direct });
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
      const done = this.reach === "tree"
        ? this.#trees.kill(target, manner)
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
    if (this.reach !== "tree" || targets.length === 0) return [];
    return await this.#trees.findAlive(targets);
  }

  /** To be called for each new leader. */
  adopt(pid: number): void {
    if (this.reach === "tree") this.#scanner.raiseOomScore(pid, CHILD_OOM_SCORE);
  }

  /** Gives up what is under way, and ends the helper. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#giveUp.abort();
    this.hurryAll();
    await this.#scanner.close();
    await Promise.allSettled([...this.#running.values()].map(({ done }) => done));
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
    throw new AgentError(
      "deadline-exceeded",
      `process "${processId}" is not gone ${
        KILL_BOUND_MS / 1000
      } s after SIGKILL; alive: ${leader.pid}`,
    );
  }
}

/** Starts the helper, if the policy allows one, and finds out how far a kill reaches. */
export async function openProcessKiller(options: ProcessKillerOptions): Promise<ProcessKiller> {
  const { log, marker } = options;
  const ownPid = Deno.pid;
  const scanner = new ProcessScanner({ spawnHelper: spawnShellHelper, marker, ownPid, log });
  try {
    scanner.makeFifo(options.fifoPath);
  } catch {
    // No helper: found out in a moment.
  }
  const direct = await findDirectSignals();
  const tested = await testKillReach(scanner, ownPid, direct, options.clock);
  return new ProcessKiller(options, scanner, direct, tested);
}
