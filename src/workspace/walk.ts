// Following a path on disk component by component, with the directory that was reached held open.
// Must not be used but by resolve.ts: what comes out of it has yet to be judged as a whole.
import { type AgentError, osErrorCode } from "../errors.ts";
import { ChangedMeanwhile, changedOr } from "./changed_meanwhile.ts";
import { describeKind, fileNotFound, refused } from "./file_error.ts";
import {
  type Access,
  joinPath,
  parentPath,
  type ParsedPath,
  type PathPolicy,
} from "./path_policy.ts";
import type { PinnedDirectory, Pinner } from "./pinned_directory.ts";

/** Linux follows 40 symlinks in one path. */
const MAX_LINKS = 40;

/** A file by its directory; whoever gets it closes that. */
export interface Entry {
  /** The nearest directory that exists, and where it was when it was opened. */
  readonly directory: PinnedDirectory;
  readonly realDirectory: string;
  /** Directories below it that do not exist, outermost first. */
  readonly missing: readonly string[];
  readonly name: string;
  /** The file itself, if there is one; no symlink. */
  readonly info: Deno.FileInfo | undefined;
}

/** lstat, with undefined for what is not there. */
export function lookUp(path: string): Deno.FileInfo | undefined {
  try {
    return Deno.lstatSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/**
 * One walk, as the kernel does it: a symlink is replaced by its target, `..` means the directory above the real
 * one. Outside the roots it goes on by text alone and looks at nothing, so that nothing can be learned
 * about what is there; a path may lead out and in again.
 */
export class Walk {
  /** Components still to come, the next one last. */
  readonly #rest: string[];
  /** The real path so far; outside the roots, where `#directory` is undefined, the lexical one. */
  #path = "/";
  #directory: PinnedDirectory | undefined;
  /** Names below `#path` that do not exist. */
  #missing: string[] = [];
  /** The path has left, by `..`, a directory that does not exist: a read finds nothing any more. */
  #hasGap = false;
  #meansDirectory: boolean;
  #linksLeft = MAX_LINKS;

  constructor(
    readonly policy: PathPolicy,
    readonly pinner: Pinner,
    readonly parsed: ParsedPath,
    readonly access: Access,
  ) {
    this.#rest = parsed.components.toReversed();
    this.#meansDirectory = parsed.meansDirectory;
  }

  /** Walks to the end. @throws ChangedMeanwhile, AgentError and OS errors; then nothing stays open. */
  run(): Entry {
    try {
      this.#moveTo("/");
      for (;;) {
        const entry = this.#step();
        if (entry !== undefined) return entry;
      }
    } catch (error) {
      this.#directory?.[Symbol.dispose]();
      throw error;
    }
  }

  #step(): Entry | undefined {
    if (this.#directory !== undefined && this.#missing.length === 0) this.#leap();
    const name = this.#rest.pop();
    if (name === undefined) throw this.#endsInDirectory();
    const isLast = this.#rest.length === 0;
    if (name === "..") {
      if (this.#missing.pop() !== undefined) this.#hasGap = true;
      else this.#moveTo(parentPath(this.#path));
    } else if (this.#directory === undefined) {
      this.#moveTo(joinPath(this.#path, name));
    } else if (this.#missing.length > 0) {
      if (isLast) return this.#endInFile(name, undefined);
      this.#missing.push(name);
    } else {
      const real = joinPath(this.#path, name);
      // What is the agent's own is refused before anything is said about it.
      if (this.policy.isForbidden(real)) throw this.policy.refusal(this.parsed.requested);
      const info = lookUp(this.#directory.child(name));
      if (info?.isSymlink) this.#follow(name, isLast);
      else if (isLast) return this.#endInFile(name, info);
      else if (info === undefined) this.#missing.push(name);
      else if (info.isDirectory) this.#enter(name);
      else throw this.#refuse("a component of the path is not a directory");
    }
    return undefined;
  }

  /** Goes to a directory by its real path; outside the roots by text alone. */
  #moveTo(path: string): void {
    this.#directory?.[Symbol.dispose]();
    this.#directory = undefined;
    this.#missing = [];
    this.#path = path;
    if (!this.policy.allows(path, this.access)) return;
    try {
      // The path is real, so asking for it again tells whether it still was when it was opened.
      this.#take(this.pinner.openDirectory(path));
    } catch (error) {
      // Users' programs do remove the whole workspace; a write makes the directories that it needs.
      if (this.access === "write" && path === this.policy.root && osErrorCode(error) === "ENOENT") {
        Deno.mkdirSync(path, { recursive: true });
      }
      throw changedOr(error);
    }
  }

  /** Goes down into the directory `name`, which was seen to be one. */
  #enter(name: string): void {
    const path = this.#directory!.child(name);
    try {
      this.#take(this.pinner.openDirectory(path));
    } catch (error) {
      if (error instanceof Deno.errors.NotCapable && this.policy.root === "/") {
        this.#refuseDevice(path);
      }
      throw changedOr(error);
    }
  }

  /** Makes `directory` the place where the walk stands, if it is inside; else closes it. */
  #take(directory: PinnedDirectory): void {
    try {
      const real = directory.realPath();
      if (!this.policy.allows(real, this.access)) throw new ChangedMeanwhile();
      this.#directory?.[Symbol.dispose]();
      this.#directory = directory;
      this.#path = real;
    } catch (error) {
      directory[Symbol.dispose]();
      throw error;
    }
  }

  /**
   * Goes down as many plain components at once as exist and lead to a place inside. What comes next is then
   * missing, a symlink to look at, no directory, or the file itself. How many is found by halving:
   * component by component, a path of 2,000 of them would take minutes, since an open costs Deno a
   * readlink for each component above.
   */
  #leap(): void {
    const rest = this.#rest;
    let longest = 0;
    // The last component is the file's.
    while (longest < rest.length - 1 && rest[rest.length - 1 - longest] !== "..") longest++;
    let reached = 0;
    let length = longest;
    while (reached < longest) {
      const names = rest.slice(rest.length - length, rest.length - reached).toReversed();
      try {
        this.#take(this.pinner.openDirectory(this.#directory!.child(names.join("/"))));
        reached = length;
      } catch {
        // Something on the way is missing, or a link that leads out: the single step will say what.
        longest = length - 1;
      }
      length = Math.ceil((reached + longest) / 2);
    }
    rest.length -= reached;
  }

  /** Puts the target of the symlink `name` in its place. */
  #follow(name: string, isLast: boolean): void {
    if (this.#linksLeft-- === 0) {
      throw this.#refuse("too many levels of symbolic links (ELOOP)");
    }
    let target: string;
    try {
      target = Deno.readLinkSync(this.#directory!.child(name));
    } catch (error) {
      if (error instanceof Deno.errors.InvalidData) {
        throw this.#refuse("a symbolic link on the path has a target that is not UTF-8");
      }
      throw changedOr(error);
    }
    if (isLast && /(^|\/)\.{0,2}$/.test(target)) this.#meansDirectory = true;
    for (const part of target.split("/").toReversed()) {
      if (part !== "" && part !== ".") this.#rest.push(part);
    }
    if (target.startsWith("/")) this.#moveTo("/");
  }

  #endInFile(name: string, info: Deno.FileInfo | undefined): Entry {
    this.policy.checkLength([...this.#missing, name].reduce(joinPath, this.#path));
    if (this.#isNowhere()) throw fileNotFound(this.parsed.requested);
    if (this.#meansDirectory) {
      if (info !== undefined && !info.isDirectory) {
        throw this.#refuse("a component of the path is not a directory");
      }
      if (info === undefined && this.access === "read") throw fileNotFound(this.parsed.requested);
      throw this.#refuse("it names a directory");
    }
    return {
      directory: this.#directory!,
      realDirectory: this.#path,
      missing: this.#missing,
      name,
      info,
    };
  }

  #endsInDirectory(): AgentError {
    if (this.#directory === undefined) return this.policy.refusal(this.parsed.requested);
    if (this.#isNowhere()) return fileNotFound(this.parsed.requested);
    return this.#refuse("it is a directory");
  }

  /** A read needs all directories that its path names; a write makes those that are missing. */
  #isNowhere(): boolean {
    return this.access === "read" && (this.#missing.length > 0 || this.#hasGap);
  }

  /**
   * Deno opens nothing in /dev, /proc and /sys without all permissions, not even the directories. What lies
   * there can be looked at all the same, and a device is refused as what it is.
   */
  #refuseDevice(directory: string): void {
    let path = directory;
    for (const name of this.#rest.toReversed()) {
      path += `/${name}`;
      const info = lookUp(path);
      if (info?.isDirectory) continue;
      if (info === undefined || info.isFile || info.isSymlink) return;
      throw this.#refuse(describeKind(info));
    }
  }

  #refuse(reason: string): AgentError {
    return refused(this.access, this.parsed.requested, reason);
  }
}
