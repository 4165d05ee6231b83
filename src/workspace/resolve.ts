// The only maker of a WorkspacePath: which file on disk a request means, and that it may be reached.
// Must not import anything of the agent outside this room but errors.ts.
import { AgentError, osErrorCode } from "../errors.ts";
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

/** Not exported: no other module can make an object with this property. */
const checked = Symbol("checked");

/**
 * A file, as an entry of a directory that is held open and was seen to be inside. Symlinks are already
 * followed: the entry itself is none. Disposing closes the directory.
 */
export interface WorkspacePath extends Disposable {
  readonly [checked]: true;
  /** The request's path, for messages. */
  readonly requested: string;
  /** The nearest directory that exists. */
  readonly directory: PinnedDirectory;
  /** Where that was when it was opened. */
  readonly realDirectory: string;
  /** Directories below it that do not exist, outermost first; always empty for a read. */
  readonly missing: readonly string[];
  readonly name: string;
  /** The file itself, if there is one. */
  readonly info: Deno.FileInfo | undefined;
  /** The path through which the file is reached from the open directory. */
  readonly path: string;
}

/** Linux follows 40 symlinks in one path. */
const MAX_LINKS = 40;
/** How often a path is resolved anew when something on it was exchanged meanwhile. */
const MAX_ATTEMPTS = 16;

/** Something changed between two looks: the next attempt sees the new state. */
export class ChangedMeanwhile extends Error {
  override readonly name = "ChangedMeanwhile";
}

/** Where a walk stands. Outside the roots it is text only, never looked at on disk. */
interface Position {
  /** The real path, or the lexical one where `directory` is undefined. */
  path: string;
  directory: PinnedDirectory | undefined;
  /** Names below `path` that do not exist. */
  missing: string[];
  /** The path has left, by `..`, a directory that does not exist: a read finds nothing any more. */
  hasGap: boolean;
}

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
    for (let attempt = 1;; attempt++) {
      try {
        using path = this.#resolve(parsed, access);
        return use(path);
      } catch (error) {
        if (!(error instanceof ChangedMeanwhile)) throw fileError(error, access, requested);
        if (attempt < MAX_ATTEMPTS) continue;
        const cause = error.cause;
        if (cause !== undefined) throw fileError(cause, access, requested);
        throw this.policy.refusal(requested);
      }
    }
  }

  #resolve(parsed: ParsedPath, access: Access): WorkspacePath {
    return this.#resolveAtOnce(parsed, access) ?? this.#walk(parsed, access);
  }

  /** The common case, in one open: a plain path, its directory there, its last component no symlink. */
  #resolveAtOnce(parsed: ParsedPath, access: Access): WorkspacePath | undefined {
    const { components } = parsed;
    if (parsed.meansDirectory || components.includes("..")) return undefined;
    const lexical = "/" + components.join("/");
    if (!this.policy.allows(lexical, access)) return undefined;
    const parent = parentPath(lexical);
    if (!this.policy.allows(parent, access)) return undefined;
    let directory: PinnedDirectory;
    try {
      directory = this.pinner.openDirectory(parent);
    } catch {
      return undefined; // The walk finds out what is wrong and where.
    }
    try {
      const real = directory.realPath();
      const name = components.at(-1)!;
      if (this.policy.allows(joinPath(real, name), access) && this.policy.allows(real, access)) {
        const info = lookUp(directory.child(name));
        if (!info?.isSymlink) {
          return this.#found(
            parsed,
            access,
            { path: real, directory, missing: [], hasGap: false },
            name,
            info,
          );
        }
      }
    } catch (error) {
      directory[Symbol.dispose]();
      if (error instanceof AgentError) throw error;
      return undefined;
    }
    directory[Symbol.dispose]();
    return undefined;
  }

  /**
   * The general case, component by component as the kernel does it: a symlink is replaced by its target,
   * `..` means the directory above the real one.
   */
  #walk(parsed: ParsedPath, access: Access): WorkspacePath {
    const rest = parsed.components.toReversed();
    const at: Position = { path: "/", directory: undefined, missing: [], hasGap: false };
    let meansDirectory = parsed.meansDirectory;
    let linksLeft = MAX_LINKS;
    try {
      this.#moveTo(at, "/", access);
      for (;;) {
        const name = rest.pop();
        if (name === undefined) return this.#endInDirectory(parsed, at, access);
        if (name === "..") {
          if (at.missing.pop() !== undefined) at.hasGap = true;
          else this.#moveTo(at, parentPath(at.path), access);
          continue;
        }
        const isLast = rest.length === 0;
        if (at.directory === undefined) {
          this.#moveTo(at, joinPath(at.path, name), access);
          continue;
        }
        if (at.missing.length > 0) {
          if (isLast) return this.#endInFile(parsed, access, at, name, undefined, meansDirectory);
          at.missing.push(name);
          continue;
        }
        // What is the agent's own is refused before anything is said about it.
        if (this.policy.isForbidden(joinPath(at.path, name))) {
          throw this.policy.refusal(parsed.requested);
        }
        const info = lookUp(at.directory.child(name));
        if (info?.isSymlink) {
          if (linksLeft-- === 0) {
            throw refused(access, parsed.requested, "too many levels of symbolic links (ELOOP)");
          }
          const target = readTarget(at.directory.child(name), parsed.requested, access);
          const names = target.split("/").filter((part) => part !== "" && part !== ".");
          if (isLast && /(^|\/)\.{0,2}$/.test(target)) meansDirectory = true;
          for (const part of names.toReversed()) rest.push(part);
          if (target.startsWith("/")) this.#moveTo(at, "/", access);
          continue;
        }
        if (isLast) return this.#endInFile(parsed, access, at, name, info, meansDirectory);
        if (info === undefined) at.missing.push(name);
        else if (info.isDirectory) this.#enter(at, name, access);
        else throw refused(access, parsed.requested, "a component of the path is not a directory");
      }
    } catch (error) {
      at.directory?.[Symbol.dispose]();
      throw error;
    }
  }

  /** Goes to a directory by its real path; outside the roots by text alone. */
  #moveTo(at: Position, path: string, access: Access): void {
    at.directory?.[Symbol.dispose]();
    at.directory = undefined;
    at.missing = [];
    at.path = path;
    if (!this.policy.allows(path, access)) return;
    let directory: PinnedDirectory;
    try {
      directory = this.pinner.openDirectory(path);
    } catch (error) {
      throw changedOr(error);
    }
    at.directory = directory;
    // The path is real, so this is a look whether it still was when it was opened.
    at.path = this.#realOf(directory, access);
  }

  /** Goes down into the directory `name`, which was seen to be one. */
  #enter(at: Position, name: string, access: Access): void {
    let child: PinnedDirectory;
    try {
      child = this.pinner.openDirectory(at.directory!.child(name));
    } catch (error) {
      throw changedOr(error);
    }
    at.directory![Symbol.dispose]();
    at.directory = child;
    at.path = this.#realOf(child, access);
  }

  #realOf(directory: PinnedDirectory, access: Access): string {
    const real = directory.realPath();
    if (!this.policy.allows(real, access)) throw new ChangedMeanwhile();
    return real;
  }

  #endInDirectory(parsed: ParsedPath, at: Position, access: Access): never {
    if (at.directory === undefined) throw this.policy.refusal(parsed.requested);
    if (isNowhere(at, access)) throw notFound(parsed.requested);
    throw refused(access, parsed.requested, "it is a directory");
  }

  #endInFile(
    parsed: ParsedPath,
    access: Access,
    at: Position,
    name: string,
    info: Deno.FileInfo | undefined,
    meansDirectory: boolean,
  ): WorkspacePath {
    if (isNowhere(at, access)) throw notFound(parsed.requested);
    if (meansDirectory) {
      if (info !== undefined && !info.isDirectory) {
        throw refused(access, parsed.requested, "a component of the path is not a directory");
      }
      if (info === undefined && access === "read") throw notFound(parsed.requested);
      throw refused(access, parsed.requested, "it names a directory");
    }
    return this.#found(parsed, access, at, name, info);
  }

  #found(
    parsed: ParsedPath,
    access: Access,
    at: Position,
    name: string,
    info: Deno.FileInfo | undefined,
  ): WorkspacePath {
    const directory = at.directory!;
    if (!this.policy.allows([...at.missing, name].reduce(joinPath, at.path), access)) {
      throw this.policy.refusal(parsed.requested);
    }
    if (info !== undefined && this.isAgentsFile(info)) throw this.policy.refusal(parsed.requested);
    return {
      [checked]: true,
      requested: parsed.requested,
      directory,
      realDirectory: at.path,
      missing: at.missing,
      name,
      info,
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

/** lstat, with undefined for what is not there. */
function lookUp(path: string): Deno.FileInfo | undefined {
  try {
    return Deno.lstatSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

function readTarget(path: string, requested: string, access: Access): string {
  try {
    return Deno.readLinkSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.InvalidData) {
      throw refused(
        access,
        requested,
        "a symbolic link on the path has a target that is not UTF-8",
      );
    }
    throw changedOr(error);
  }
}

/** Errors that a component that was exchanged just now can cause; others are final. */
function changedOr(error: unknown): unknown {
  const code = osErrorCode(error);
  return code === "ENOENT" || code === "ENOTDIR" || code === "ELOOP" || code === "EINVAL" ||
      code === "NotCapable"
    ? new ChangedMeanwhile("a component of the path was exchanged", { cause: error })
    : error;
}

/** A read needs all directories that its path names; a write makes those that are missing. */
function isNowhere(at: Position, access: Access): boolean {
  return access === "read" && (at.missing.length > 0 || at.hasGap);
}

function notFound(requested: string): AgentError {
  return new AgentError("not-found", `file "${requested}" not found`);
}
