// The only maker of a WorkspacePath: which file on disk a request means, and that it may be reached.
// Must not import anything of the agent outside this room but errors.ts.
import { type AgentError, osErrorCode } from "../errors.ts";
import { ChangedMeanwhile } from "./changed_meanwhile.ts";
import { fileError, refused } from "./file_error.ts";
import {
  type Access,
  isWithin,
  joinPath,
  parentPath,
  type ParsedPath,
  type PathPolicy,
} from "./path_policy.ts";
import type { PinnedDirectory, Pinner } from "./pinned_directory.ts";
import { type Entry, lookUp, Walk } from "./walk.ts";

/** Not exported: no other module can make an object with this property. */
const checked = Symbol("checked");

/**
 * A file, as an entry of a directory that is held open and was seen to be inside. Symlinks are already
 * followed: the entry itself is none. Disposing closes the directory.
 */
export interface WorkspacePath extends Entry, Disposable {
  readonly [checked]: true;
  /** The request's path, for messages. */
  readonly requested: string;
  /** The path through which the file is reached from the open directory. */
  readonly path: string;
}

/** How often a path is resolved anew when something on it was exchanged meanwhile. */
const MAX_ATTEMPTS = 32;

/** Turns requests' paths into {@linkcode WorkspacePath}s. Keeps nothing from call to call. */
export class Resolver {
  constructor(readonly policy: PathPolicy, readonly pinner: Pinner) {}

  /**
   * Runs `use` on the file that `requested` means. `use` may throw {@linkcode ChangedMeanwhile}: then the
   * path is resolved again, a few times.
   *
   * @throws {AgentError} as in the contract's table.
   */
  withPath<T>(requested: string, access: Access, use: (path: WorkspacePath) => T): T {
    const parsed = this.policy.parse(requested);
    const causes: unknown[] = [];
    for (;;) {
      try {
        using path = this.#check(
          this.#findAtOnce(parsed, access) ??
            new Walk(this.policy, this.pinner, parsed, access).run(),
          requested,
          access,
        );
        return use(path);
      } catch (error) {
        if (!(error instanceof ChangedMeanwhile)) throw fileError(error, access, requested);
        causes.push(error.cause);
        if (causes.length === MAX_ATTEMPTS) throw this.#giveUp(causes, access, requested);
      }
    }
  }

  /** An error that came every time is what it looks like; different ones mean that somebody races. */
  #giveUp(causes: readonly unknown[], access: Access, requested: string): AgentError {
    const [first, ...others] = causes.map(osErrorCode);
    if (others.some((code) => code !== first)) {
      return refused(access, requested, "components of the path keep being exchanged");
    }
    if (first === undefined) return this.policy.refusal(requested);
    return fileError(causes[0], access, requested);
  }

  /**
   * The common case, in one open: a plain path, its directory there and inside, its last component no
   * symlink. Undefined for anything else: the walk finds out what is wrong and where.
   */
  #findAtOnce(parsed: ParsedPath, access: Access): Entry | undefined {
    const { components } = parsed;
    if (parsed.meansDirectory || components.includes("..")) return undefined;
    const parent = parentPath("/" + components.join("/"));
    if (!this.policy.allows(parent, access)) return undefined;
    let directory: PinnedDirectory | undefined;
    try {
      directory = this.pinner.openDirectory(parent);
      const realDirectory = directory.realPath();
      const name = components.at(-1)!;
      if (this.policy.allows(realDirectory, access)) {
        const info = lookUp(directory.child(name));
        if (!info?.isSymlink) return { directory, realDirectory, missing: [], name, info };
      }
    } catch {
      // As said above.
    }
    directory?.[Symbol.dispose]();
    return undefined;
  }

  /** The last judgement on what was found. */
  #check(entry: Entry, requested: string, access: Access): WorkspacePath {
    const { directory, realDirectory, missing, name, info } = entry;
    try {
      const real = [...missing, name].reduce(joinPath, realDirectory);
      this.policy.checkLength(real);
      if (!this.policy.allows(real, access) || (info !== undefined && this.isAgentsFile(info))) {
        throw this.policy.refusal(requested);
      }
    } catch (error) {
      directory[Symbol.dispose]();
      throw error;
    }
    return {
      ...entry,
      [checked]: true,
      requested,
      path: directory.child(name),
      [Symbol.dispose]: () => directory[Symbol.dispose](),
    };
  }

  /**
   * Whether a file is one of the agent's own under another name: a hard link, a bind mount, or the real
   * path of one that was configured by a symlink (as Kubernetes mounts secrets).
   */
  isAgentsFile(info: { readonly dev: number; readonly ino: number | null }): boolean {
    return this.policy.forbidden.some((path) => {
      if (isWithin(this.pinner.stateDir, path)) return false;
      try {
        const own = Deno.statSync(path);
        return own.isFile && own.dev === info.dev && own.ino === info.ino;
      } catch {
        return false; // What the agent cannot look at it cannot hand out either.
      }
    });
  }
}
