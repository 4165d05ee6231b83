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

/**
 * Makes the directory `target` with all of `names` below it, the last of which is the file. They come into
 * being in the agent's own directory and appear in one rename: nobody can put a symlink among them
 * meanwhile, nobody sees half of them, and nothing is left of them when it fails.
 *
 * @param above The directory that will hold `target`; with its setgid bit set, its group is handed down.
 * @returns Descriptors of the new directories, if they are to be synced.
 */
export function placeWithDirectories(
  temporary: TemporaryFile,
  target: string,
  names: readonly string[],
  above: Deno.FileInfo,
  fsync: boolean,
): number[] {
  const staged = `${temporary.path}.d`;
  const toSync: number[] = [];
  const opened: PinnedDirectory[] = [];
  let path = staged;
  let relativeLength = 0;
  try {
    makeDirectory(path, above);
    for (const name of names.slice(0, -1)) {
      if (relativeLength > MAX_RELATIVE_LENGTH) {
        const directory = temporary.directory.pinner.openDirectory(path);
        opened.push(directory);
        path = directory.path;
        relativeLength = 0;
      }
      path += `/${name}`;
      relativeLength += name.length + 1;
      makeDirectory(path, above);
      if (fsync) toSync.push(fs.openSync(path, fs.constants.O_RDONLY));
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

/** A directory of mode 0755 whatever the umask, with the group that one made below `above` would have. */
function makeDirectory(path: string, above: Deno.FileInfo): void {
  Deno.mkdirSync(path, { mode: MODE });
  const info = Deno.statSync(path);
  const handsDown = (above.mode! & SETGID) !== 0;
  if (handsDown && info.gid !== above.gid) {
    try {
      Deno.chownSync(path, null, above.gid);
    } catch {
      // The agent is not in that group: so would be a directory made by mkdir -p elsewhere and moved.
    }
  }
  const wanted = handsDown ? MODE | SETGID : MODE;
  if ((info.mode! & MAX_MODE) !== wanted) Deno.chmodSync(path, wanted);
}
