// The only maker of a WorkspacePath: which file on disk a request means, and that it may be reached.
// Must not import anything of the agent outside this room but errors.ts.
import { AgentError, osErrorCode } from "../errors.ts";
import { ChangedMeanwhile, changedOr } from "./changed_meanwhile.ts";
import { describeKind, fileError, refused } from "./file_error.ts";
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
const MAX_ATTEMPTS = 32;

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
    const causes: unknown[] = [];
    for (;;) {
      try {
        using path = this.#resolve(parsed, access);
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
        if (at.directory !== undefined && at.missing.length === 0) this.#leap(at, rest, access);
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
        else if (info.isDirectory) this.#enter(parsed, at, name, rest, access);
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
      // Users' programs do remove the whole workspace; a write makes the directories that it needs.
      if (access === "write" && path === this.policy.root && osErrorCode(error) === "ENOENT") {
        Deno.mkdirSync(path, { recursive: true });
      }
      throw changedOr(error);
    }
    at.directory = directory;
    // The path is real, so this is a look whether it still was when it was opened.
    at.path = this.#realOf(directory, access);
  }

  /** Goes down into the directory `name`, which was seen to be one. */
  #enter(parsed: ParsedPath, at: Position, name: string, rest: string[], access: Access): void {
    let child: PinnedDirectory;
    try {
      child = this.pinner.openDirectory(at.directory!.child(name));
    } catch (error) {
      if (error instanceof Deno.errors.NotCapable && this.policy.root === "/") {
        refuseDevice(at.directory!.child(name), rest, parsed.requested, access);
      }
      throw changedOr(error);
    }
    at.directory![Symbol.dispose]();
    at.directory = child;
    at.path = this.#realOf(child, access);
  }

  /**
   * Goes down as many plain components of `rest` at once as exist and lead to a place inside, and takes them
   * off. What comes next is then missing, a symlink to look at, no directory, or the file itself. The number
   * is found by halving: component by component, a path of 2,000 of them would take minutes, since an
   * open costs Deno a readlink for each component above.
   */
  #leap(at: Position, rest: string[], access: Access): void {
    let longest = 0;
    // The last component is the file's.
    while (longest < rest.length - 1 && rest[rest.length - 1 - longest] !== "..") longest++;
    let reached = 0;
    let length = longest;
    while (reached < longest) {
      const names = rest.slice(rest.length - length, rest.length - reached).toReversed();
      if (this.#tryEnter(at, names.join("/"), access)) reached = length;
      else longest = length - 1;
      length = Math.ceil((reached + longest) / 2);
    }
    rest.length -= reached;
  }

  #tryEnter(at: Position, relative: string, access: Access): boolean {
    let directory: PinnedDirectory;
    try {
      directory = this.pinner.openDirectory(at.directory!.child(relative));
    } catch {
      return false;
    }
    try {
      const real = directory.realPath();
      if (this.policy.allows(real, access)) {
        at.directory![Symbol.dispose]();
        at.directory = directory;
        at.path = real;
        return true;
      }
    } catch {
      // Its path is not UTF-8: found out again by the component that leads there.
    }
    directory[Symbol.dispose]();
    return false;
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
    this.policy.checkLength([...at.missing, name].reduce(joinPath, at.path));
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
    const real = [...at.missing, name].reduce(joinPath, at.path);
    this.policy.checkLength(real);
    if (!this.policy.allows(real, access)) {
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

/**
 * Deno opens nothing in /dev, /proc and /sys without all permissions, not even the directories. What lies there
 * can be looked at all the same, and a device is refused as what it is.
 */
function refuseDevice(path: string, rest: string[], requested: string, access: Access): void {
  for (const name of rest.toReversed()) {
    path += `/${name}`;
    const info = lookUp(path);
    if (info?.isDirectory) continue;
    if (info === undefined || info.isFile || info.isSymlink) return;
    throw refused(access, requested, describeKind(info));
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

/** A read needs all directories that its path names; a write makes those that are missing. */
function isNowhere(at: Position, access: Access): boolean {
  return access === "read" && (at.missing.length > 0 || at.hasGap);
}

function notFound(requested: string): AgentError {
  return new AgentError("not-found", `file "${requested}" not found`);
}
