// Where the content of an upload grows until it is renamed into place, and how it goes away again.
// Must not import resolve.ts: what it gets is an open directory that was found to be inside.
import { AgentError, osErrorCode } from "../errors.ts";
import { ChangedMeanwhile, changedOr } from "./changed_meanwhile.ts";
import { joinPath, parentPath } from "./path_policy.ts";
import type { PinnedDirectory, Pinner } from "./pinned_directory.ts";
import type { StrayNotes } from "./stray_notes.ts";

/** Name of the directory for temporary files on a mount other than that of the state directory. */
export const TEMPORARY_DIRECTORY = ".ateenv-tmp";

/** How often making a file is tried where others remove the directory once it is empty. */
const MAX_ATTEMPTS = 16;

/** Longer than any file system's longest name (NAME_MAX 255; FUSE 1,024), so that it names nothing. */
const IMPOSSIBLE_NAME = "x".repeat(1200);

/** A file that has no place yet. Disposing closes it, and removes it unless it was renamed. */
export class TemporaryFile implements Disposable {
  readonly file: Deno.FsFile;
  /** The path of the file from its open directory, which is the agent's own. */
  readonly path: string;
  /** Owner, group and mode that the kernel gave it. */
  readonly made: Deno.FileInfo;
  #isPlaced = false;

  constructor(
    readonly directory: PinnedDirectory,
    name: string,
    /** The directory that holds `directory`, if that is to go when it is empty. */
    readonly holder: PinnedDirectory | undefined,
  ) {
    this.path = directory.child(name);
    this.made = Deno.lstatSync(this.path);
    this.file = openVerified(this.path, this.made);
  }

  /** Renames the file to `path`, a path from an open directory. After that it is not removed any more. */
  placeAt(path: string): void {
    Deno.renameSync(this.path, path);
    this.#isPlaced = true;
  }

  /** Takes back {@linkcode placeAt}. */
  takeBackFrom(path: string): void {
    Deno.renameSync(path, this.path);
    this.#isPlaced = false;
  }

  [Symbol.dispose](): void {
    this.file.close();
    if (!this.#isPlaced) ignoreErrors(() => Deno.removeSync(this.path));
    if (this.holder !== undefined) {
      const path = this.holder.child(TEMPORARY_DIRECTORY);
      ignoreErrors(() => Deno.removeSync(path));
      this.holder[Symbol.dispose]();
    }
    this.directory[Symbol.dispose]();
  }
}

/** Opens a file that was made just now, and makes sure before the first byte that it is that one. */
function openVerified(path: string, made: Deno.FileInfo): Deno.FsFile {
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(path, { write: true });
  } catch (error) {
    throw changedOr(error);
  }
  const opened = file.statSync();
  if (opened.isFile && opened.dev === made.dev && opened.ino === made.ino) return file;
  file.close();
  throw new ChangedMeanwhile("another file was opened");
}

/** Makes temporary files on the mount of their target. */
export class TemporaryFiles {
  constructor(
    readonly pinner: Pinner,
    /** Real path of the sandbox root: nothing is made above it. */
    readonly root: string,
    readonly notes: StrayNotes,
  ) {}

  /** A new, empty file of mode 0600, from which a rename into `target` is possible. Throws OS errors. */
  create(target: PinnedDirectory): TemporaryFile {
    const own = this.#openOwn();
    try {
      if (isSameMount(own, target)) return createIn(own);
    } catch (error) {
      own[Symbol.dispose]();
      throw error;
    }
    own[Symbol.dispose]();
    return this.#createOnMountOf(target);
  }

  /** Opens STATE/tmp, made where it is not there yet. */
  #openOwn(): PinnedDirectory {
    const path = `${this.pinner.stateDir}/tmp`;
    try {
      return this.pinner.openDirectory(path);
    } catch (error) {
      if (osErrorCode(error) !== "ENOENT") throw error;
      Deno.mkdirSync(path, { recursive: true, mode: 0o700 });
      return this.pinner.openDirectory(path);
    }
  }

  /**
   * As near to the top of the mount as the agent may write. (Users' programs watch directories such as the
   * target's own, and list them.)
   */
  #createOnMountOf(target: PinnedDirectory): TemporaryFile {
    const lowest = target.realPath();
    let refusal: unknown;
    for (const path of pathsDownTo(this.root, lowest)) {
      let top: PinnedDirectory;
      try {
        top = this.pinner.openDirectory(path);
      } catch {
        continue; // Gone, or out of the agent's reach: the next one may do.
      }
      try {
        if (top.realPath() === path && isSameMount(top, target)) {
          return this.#createBelow(top, path);
        }
      } catch (error) {
        refusal = error;
        const code = osErrorCode(error);
        if (code !== "EACCES" && code !== "EPERM") {
          top[Symbol.dispose]();
          throw error;
        }
      }
      top[Symbol.dispose]();
    }
    throw refusal ?? new Deno.errors.NotFound();
  }

  /** Makes a file in the 0700 directory below `top`, which it then owns. */
  #createBelow(top: PinnedDirectory, topPath: string): TemporaryFile {
    // Noted first: an agent that is killed right after mkdir leaves nothing that it does not know of.
    this.notes.add(joinPath(topPath, TEMPORARY_DIRECTORY));
    const path = top.child(TEMPORARY_DIRECTORY);
    for (let attempt = 1;; attempt++) {
      const isMade = makeDirectory(path);
      try {
        const info = Deno.lstatSync(path);
        if (!info.isDirectory || info.uid !== this.pinner.ownUid() || (info.mode! & 0o077) !== 0) {
          const name = joinPath(topPath, TEMPORARY_DIRECTORY);
          throw new AgentError(
            "failed-precondition",
            `"${name}" is in the way: it is not a directory of the agent's with mode 0700`,
          );
        }
        return createIn(this.pinner.openDirectory(path), top, this.notes.filePrefix());
      } catch (error) {
        if (isMade) ignoreErrors(() => Deno.removeSync(path));
        // Another upload has finished and removed the directory in between.
        if (osErrorCode(error) !== "ENOENT" || attempt === MAX_ATTEMPTS) throw error;
      }
    }
  }
}

/** Whether the directory was not there before. */
function makeDirectory(path: string): boolean {
  try {
    Deno.mkdirSync(path, { mode: 0o700 });
    return true;
  } catch (error) {
    if (osErrorCode(error) === "EEXIST") return false;
    throw error;
  }
}

function createIn(
  directory: PinnedDirectory,
  holder?: PinnedDirectory,
  prefix = "",
): TemporaryFile {
  let path: string | undefined;
  try {
    // O_CREAT | O_EXCL, 0600, and a random name, straight in the open directory.
    path = Deno.makeTempFileSync({ dir: directory.path, prefix });
    return new TemporaryFile(directory, path.slice(path.lastIndexOf("/") + 1), holder);
  } catch (error) {
    if (path !== undefined) ignoreErrors(() => Deno.removeSync(path!));
    directory[Symbol.dispose]();
    throw error;
  }
}

/**
 * Whether a rename from one directory into the other is possible as far as mounts go: two mounts of one file
 * system have the same device number and still refuse it. The kernel compares the mounts, and looks whether
 * they are writable, before it looks for the source, which no file system can hold.
 *
 * @throws EROFS where the mount is read-only.
 */
export function isSameMount(from: PinnedDirectory, to: PinnedDirectory): boolean {
  // gVisor looks for the source first, and so says nothing of the mounts below.
  if (Deno.statSync(from.path).dev !== Deno.statSync(to.path).dev) return false;
  try {
    Deno.renameSync(from.child(IMPOSSIBLE_NAME), to.child(TEMPORARY_DIRECTORY));
  } catch (error) {
    switch (osErrorCode(error)) {
      case "EXDEV":
        return false;
      case "ENAMETOOLONG":
      case "ENOENT":
        return true;
    }
    throw error;
  }
  throw new AgentError("internal", "a file with an impossible name was renamed");
}

/** `from` and each directory below it on the way to `to`, topmost first; `to` only if it is not below. */
export function pathsDownTo(from: string, to: string): string[] {
  const paths = [to];
  while (paths[0] !== from && paths[0] !== "/") paths.unshift(parentPath(paths[0]!));
  return paths[0] === from ? paths : [to];
}

function ignoreErrors(action: () => void): void {
  try {
    action();
  } catch {
    // What is gone or cannot go now is looked for again at the next start.
  }
}
