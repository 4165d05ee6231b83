// The directories of an upload that do not exist yet: made aside, with the file in them, then renamed into place.
// Must not import resolve.ts: it gets a path from an open directory that was found to be inside.
import fs from "node:fs";
import type { PinnedDirectory } from "./pinned_directory.ts";
import type { TemporaryFile } from "./temporary_file.ts";

const MODE = 0o755;
const MAX_MODE = 0o7777;
const SETGID = 0o2000;

/** Paths relative to a descriptor may be this long before the next one is opened (PATH_MAX is 4,096). */
const MAX_RELATIVE_LENGTH = 1024;

/** Who is to own what is new; null for the agent's own user or group. */
export interface NewOwner {
  readonly uid: number | null;
  readonly gid: number | null;
}

/** A new owner, and whether new directories hand their group on. */
export interface InheritedOwner extends NewOwner {
  readonly setgid: boolean;
}

/** The owner of what is new in the directory `above`: with its setgid bit set, that hands its group down. */
export function ownerBelow(above: Deno.FileInfo, newOwner: NewOwner | undefined): InheritedOwner {
  const setgid = (above.mode! & SETGID) !== 0;
  return {
    uid: newOwner?.uid ?? null,
    gid: setgid ? above.gid : newOwner?.gid ?? null,
    setgid,
  };
}

/** Changes the owner where the agent may; whether it did. */
export function tryChown(path: string, uid: number | null, gid: number | null): boolean {
  try {
    Deno.chownSync(path, uid, gid);
    return true;
  } catch {
    return false;
  }
}

/**
 * Makes the directory `target` with all of `names` below it, the last of which is the file. They come into
 * being in the agent's own directory and appear in one rename: nobody can put a symlink among them
 * meanwhile, nobody sees half of them, and nothing is left of them when it fails.
 *
 * @returns Descriptors of the new directories, if they are to be synced.
 */
export function placeWithDirectories(
  temporary: TemporaryFile,
  target: string,
  names: readonly string[],
  owner: InheritedOwner,
  fsync: boolean,
): number[] {
  const staged = `${temporary.path}.d`;
  const toSync: number[] = [];
  const opened: PinnedDirectory[] = [];
  let path = staged;
  let relativeLength = 0;
  const make = () => {
    makeDirectory(path, owner);
    if (fsync) toSync.push(fs.openSync(path, fs.constants.O_RDONLY));
  };
  try {
    make();
    for (const name of names.slice(0, -1)) {
      if (relativeLength > MAX_RELATIVE_LENGTH) {
        const directory = temporary.directory.pinner.openDirectory(path);
        opened.push(directory);
        path = directory.path;
        relativeLength = 0;
      }
      path += `/${name}`;
      relativeLength += name.length + 1;
      make();
    }
    path += `/${names.at(-1)}`;
    temporary.placeAt(path);
    try {
      Deno.renameSync(staged, target);
    } catch (error) {
      temporary.takeBackFrom(path);
      throw error;
    }
    return toSync;
  } catch (error) {
    toSync.forEach((fd) => fs.closeSync(fd));
    try {
      Deno.removeSync(staged, { recursive: true });
    } catch {
      // It was not made, or goes at the next start.
    }
    throw error;
  } finally {
    opened.forEach((directory) => directory[Symbol.dispose]());
  }
}

/** A directory of mode 0755 whatever the umask, with the owner that it is to have. */
function makeDirectory(path: string, { uid, gid, setgid }: InheritedOwner): void {
  Deno.mkdirSync(path, { mode: MODE });
  const info = Deno.statSync(path);
  if ((uid ?? info.uid) !== info.uid || (gid ?? info.gid) !== info.gid) tryChown(path, uid, gid);
  const wanted = setgid ? MODE | SETGID : MODE;
  if ((info.mode! & MAX_MODE) !== wanted) Deno.chmodSync(path, wanted);
}
