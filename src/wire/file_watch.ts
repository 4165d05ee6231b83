// Notices, when asked, that small files on disk were written or replaced.
// A leaf but for the clock. Looks at most every so often: no event tells of a change on every file system.
import type { Clock } from "../clock.ts";

/** Milliseconds for which an answer stands. */
const RECHECK_MS = 200;

/** See the head of this file. */
export class FileWatch {
  readonly #paths: readonly string[];
  readonly #clock: Clock;
  #seen: string;
  #checkedMs: number;

  /** @throws what Deno.statSync throws, where a file cannot be looked at now */
  constructor(paths: readonly string[], clock: Clock) {
    this.#paths = paths;
    this.#clock = clock;
    this.#seen = identityOf(paths);
    this.#checkedMs = clock.nowMs();
  }

  /**
   * Runs `reload` if a file changed since it last ran without throwing. What it throws, or a file that is
   * missing while it is replaced, is thrown here and tried again later.
   */
  check(reload: () => void): void {
    const now = this.#clock.nowMs();
    if (now - this.#checkedMs < RECHECK_MS) return;
    this.#checkedMs = now;
    const identity = identityOf(this.#paths);
    if (identity === this.#seen) return;
    reload();
    this.#seen = identity;
  }
}

function identityOf(paths: readonly string[]): string {
  return paths.map((path) => {
    const { dev, ino, size, mtime, ctime } = Deno.statSync(path);
    return [dev, ino, size, mtime?.getTime(), ctime?.getTime()].join(":");
  }).join(" ");
}
