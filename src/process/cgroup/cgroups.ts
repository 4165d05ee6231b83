// One cgroup for each process below a directory of the user's: born inside, killed as one, removed.
// Must not know trees, records or the table.
import type { Clock } from "../../clock.ts";
import { AgentError } from "../../errors.ts";
import { errorFields, type Logger } from "../../log.ts";
import { Deadline } from "../deadline.ts";
import type { Helper } from "../deno_spawner.ts";
import { cgroupDirectory } from "./cgroup_path.ts";
import { CgroupHelper, cgroupScript } from "./cgroup_helper.ts";

/** Options of {@linkcode openCgroups}. */
export interface CgroupsOptions {
  /** Absolute path of a directory in a cgroup v2 file system. */
  readonly path: string;
  readonly agentPid: number;
  /** Starts a shell with a script in a directory; throws when it cannot. */
  readonly spawnHelper: (script: string, cwd: string) => Helper;
  readonly clock: Clock;
  readonly log: Logger;
}

/** First and longest pause between two looks while processes go away. */
const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 50;

/** Made by {@linkcode openCgroups}. */
export class Cgroups implements AsyncDisposable {
  readonly #options: CgroupsOptions;
  #helper: CgroupHelper;
  /** Directory of the agent's own cgroup. */
  readonly #home: string;
  /** The last start in the queue: one at a time is inside. */
  #last: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** For {@linkcode openCgroups}. */
  constructor(options: CgroupsOptions, helper: CgroupHelper, home: string) {
    this.#options = options;
    this.#helper = helper;
    this.#home = home;
  }

  /** Never to be signalled. */
  get helperPid(): number {
    return this.#helper.pid;
  }

  /**
   * Runs `spawn` while the agent itself is in the cgroup of `processId`, and so what it spawns is born
   * there: nothing that a program does can get past it, however quick it is. The agent is out again
   * before anything else can happen to that cgroup, and one start at a time does this.
   * @throws AgentError `resource-exhausted` when the cgroup cannot be made or entered; what `spawn` throws
   */
  within<T>(processId: string, spawn: () => Promise<T>): Promise<T> {
    const result = this.#last.then(() => this.#spawnWithin(processId, spawn));
    this.#last = result.catch(() => {});
    return result;
  }

  /**
   * Kills all that is in the cgroup of a process, and removes it.
   * @returns the pids that are still there `boundMs` later (or when it is given up); none: all is gone
   */
  async kill(processId: string, boundMs: number, giveUp?: AbortSignal): Promise<readonly string[]> {
    const bound = new Deadline(this.#options.clock, boundMs, giveUp);
    let alive = ["unknown"];
    try {
      // Deno has no way to wait for cgroup.events: looking again is the one way there is.
      for (let pauseMs = FIRST_PAUSE_MS; !bound.over; pauseMs *= 2) {
        const answer = await Promise.race([this.#ask("kill", processId), bound.passed]);
        if (answer === "gone") return [];
        if (answer?.startsWith("alive")) alive = answer.split(" ").slice(1);
        const pause = new Deadline(
          this.#options.clock,
          Math.min(pauseMs, LONGEST_PAUSE_MS),
          bound.signal,
        );
        await pause.passed;
        pause.cancel();
      }
    } finally {
      bound.cancel();
    }
    return alive;
  }

  /** Sends SIGKILL to all that is in the cgroup of a process, and waits for nothing. */
  strike(processId: string): void {
    void this.#ask("kill", processId);
  }

  /** Removes the cgroup of a process if nothing is in it. */
  remove(processId: string): void {
    void this.#ask("remove", processId);
  }

  /** Removes what is empty: what an agent that is gone has left. */
  async sweep(): Promise<void> {
    await this.#ask("sweep");
  }

  /** Ids of the processes of which something is alive. */
  async alive(): Promise<ReadonlySet<string>> {
    return new Set((await this.#ask("alive"))?.split(" ").filter((id) => id !== ""));
  }

  /** Ends the helper. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#last;
    this.#closed = true;
    await this.#helper.close();
  }

  async #spawnWithin<T>(processId: string, spawn: () => Promise<T>): Promise<T> {
    try {
      if (await this.#ask("join", processId) !== "ok") {
        throw new AgentError("resource-exhausted", "cannot make or enter a cgroup for the process");
      }
      return await spawn();
    } finally {
      if (await this.#ask("leave") !== "ok" && !this.#closed) {
        // The next helper's first act is the same, and so is a kill's.
        this.#options.log.error("the agent has not got out of a process's cgroup", { processId });
      }
      // Nothing was born there, or it is gone already.
      this.remove(processId);
    }
  }

  /** Never rejects: undefined where there is no helper to be had now. */
  async #ask(verb: string, word?: string): Promise<string | undefined> {
    try {
      return await this.#ensureHelper().ask(verb, word);
    } catch (error) {
      if (!this.#closed) this.#options.log.warn("no answer about cgroups", errorFields(error));
      return undefined;
    }
  }

  #ensureHelper(): CgroupHelper {
    if (this.#helper.alive || this.#closed) return this.#helper;
    this.#helper = startHelper(this.#options);
    // It may have been born in a process's cgroup. Whether that has worked shows at the next command.
    this.#helper.ask("home", this.#home).catch(() => {});
    return this.#helper;
  }
}

function startHelper({ agentPid, spawnHelper, path }: CgroupsOptions): CgroupHelper {
  return new CgroupHelper(spawnHelper(cgroupScript(agentPid), path));
}

/**
 * Tries everything that a start and a kill need.
 * @throws AgentError `failed-precondition` saying why the directory cannot be used
 */
export async function openCgroups(options: CgroupsOptions): Promise<Cgroups> {
  const refusal = (why: string, cause?: unknown) =>
    new AgentError("failed-precondition", `cannot use --cgroup "${options.path}": ${why}`, {
      cause,
    });
  let helper: CgroupHelper;
  try {
    helper = startHelper(options);
  } catch (error) {
    const why = error instanceof Deno.errors.NotCapable
      ? "it takes sh, which --allow-run does not list"
      : "there is no such directory, or no sh";
    throw refusal(why, error);
  }
  const probe = `ateenvd-probe-${options.agentPid}`;
  try {
    const own = await helper.ask("where");
    const answer = await helper.ask("probe", probe);
    if (answer !== "ok") throw refusal(answer);
    const name = await helper.ask("where");
    const home = cgroupDirectory(own, { name, directory: `${options.path}/${probe}` });
    if (home === undefined || await helper.ask("home", home) !== "ok") {
      throw refusal(
        `the agent's own cgroup, ${own}, is not in the same mount, or cannot be entered`,
      );
    }
    // The agent has more threads and perhaps less rights than the helper.
    const joined = await helper.ask("join", probe);
    const left = await helper.ask("leave");
    if (joined !== "ok" || left !== "ok") {
      throw refusal("the agent cannot enter and leave its cgroups");
    }
    await helper.ask("remove", probe);
    return new Cgroups(options, helper, home);
  } catch (error) {
    await helper.ask("remove", probe).catch(() => {});
    await helper.close();
    throw error instanceof AgentError ? error : refusal("the helper has ended", error);
  }
}
