// Replacing a file by uploaded content: all of it or nothing.
// Must not decide which file is meant: that is resolve.ts.
import fs from "node:fs";
import { AgentError, cancelledError, osErrorCode } from "../errors.ts";
import { ChangedMeanwhile } from "./changed_meanwhile.ts";
import { describeKind, fileError, refused } from "./file_error.ts";
import { type NewOwner, ownerBelow, placeWithDirectories, tryChown } from "./new_directories.ts";
import type { Resolver, WorkspacePath } from "./resolve.ts";
import { Interruption, receiveInto } from "./receive.ts";
import type { TemporaryFile, TemporaryFiles } from "./temporary_file.ts";

const MAX_MODE = 0o7777;
const NEW_FILE_MODE = 0o644;
const SETID = 0o6000;

/** What a write needs beside its arguments. */
export interface WriteContext {
  readonly resolver: Resolver;
  readonly temporaryFiles: TemporaryFiles;
  /** Whether content, file and directory are on stable storage when the call returns. */
  readonly fsync: boolean;
  /** Owner of what is new, where that is not the agent. */
  readonly newOwner: NewOwner | undefined;
}

/**
 * Replaces or creates the file that `requested` means by the bytes of `source`; returns how many they were.
 * Until the last moment nothing of it shows: missing directories are made and the mode and owner of the
 * old file are looked at right before the rename.
 *
 * @param mode 0: a new file gets 0644, an existing one keeps its mode; else exactly this mode.
 * @throws {AgentError} as in the contract's table; cancelled when `signal` is aborted before the rename.
 */
export async function writeFile(
  context: WriteContext,
  requested: string,
  mode: number,
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): Promise<number> {
  if (!Number.isInteger(mode) || mode < 0 || mode > MAX_MODE) {
    throw new AgentError("invalid-argument", "file mode cannot be greater than 07777");
  }
  if (signal.aborted) throw cancelledError();
  const { resolver, temporaryFiles, fsync, newOwner } = context;
  try {
    using temporary = resolver.withPath(requested, "write", (path) => {
      requireReplaceable(path);
      return temporaryFiles.create(path.directory);
    });
    using interruption = new Interruption(signal);
    const bytes = await receiveInto(temporary.file, source, interruption);
    if (fsync) await interruption.race(temporary.file.sync());
    // A reset that came right behind the end of the stream is in a later turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
    if (signal.aborted) throw cancelledError();
    const toSync = resolver.withPath(
      requested,
      "write",
      (path) => place(temporary, path, mode, newOwner, fsync),
    );
    await syncAndClose(toSync);
    return bytes;
  } catch (error) {
    throw fileError(error, "write", requested);
  }
}

/**
 * Only regular files are replaced. What that means where rename(2) differs from a write in place:
 *
 * | target | outcome |
 * |---|---|
 * | directory, FIFO, socket, device | FAILED_PRECONDITION: nothing is opened, no content is taken |
 * | mount point: a bind-mounted single file such as /etc/hosts, a ConfigMap's subPath | FAILED_PRECONDITION (EBUSY). A write in place could tear and lose the old content; mount its directory |
 * | on a read-only mount | FAILED_PRECONDITION (EROFS), before content is taken |
 * | symlink | its target is replaced, the link stays; one that leads out is refused |
 * | several hard links | this name gets the new content, the others keep the old (a package store that is linked into many trees is not damaged) |
 * | a program being executed, a file held open | replaced; who has it open keeps the old content |
 * | mode without w, owner another | replaced if the directory may be written, as mv does; the owner is kept where the agent may, else setuid and setgid go, unless a mode was given |
 * | in a sticky directory and of another user, immutable, append-only | PERMISSION_DENIED (EPERM) |
 * | ACL, extended attributes, file capabilities, security label | not kept: the new file has what the mode says |
 * | overlayfs, lower layer | replaced in the upper layer |
 */
function requireReplaceable(path: WorkspacePath): void {
  const { info, requested } = path;
  if (info !== undefined && !info.isFile) throw refused("write", requested, describeKind(info));
}

/**
 * Gives the finished file its owner, mode, directories and name. Synchronous from the look at the old file to
 * the rename: no other call of this agent comes in between. Returns descriptors of the directories that
 * are to be synced.
 */
function place(
  temporary: TemporaryFile,
  path: WorkspacePath,
  mode: number,
  newOwner: NewOwner | undefined,
  fsync: boolean,
): number[] {
  requireReplaceable(path);
  const owner = ownerBelow(Deno.statSync(path.directory.path), newOwner);
  setOwnerAndMode(temporary, path.info, owner, mode);
  const toSync: number[] = [];
  try {
    if (fsync) toSync.push(fs.openSync(path.directory.path, fs.constants.O_RDONLY));
    const [first, ...rest] = [...path.missing, path.name];
    const target = path.directory.child(first!);
    if (rest.length === 0) temporary.placeAt(target);
    else toSync.push(...placeWithDirectories(temporary, target, rest, owner, fsync));
    return toSync;
  } catch (error) {
    toSync.forEach((fd) => fs.closeSync(fd));
    throw renameError(error, path);
  }
}

function renameError(error: unknown, path: WorkspacePath): unknown {
  switch (osErrorCode(error)) {
    case "ENOENT": // The directory was removed since it was opened.
    case "EISDIR": // A directory has come since the look; so in the next two.
    case "EEXIST":
    case "ENOTEMPTY":
    case "ENOTDIR":
      return new ChangedMeanwhile("the target was exchanged", { cause: error });
    case "EXDEV":
      return refused("write", path.requested, "its directory has moved to another file system");
  }
  return error;
}

/** Makes owner and mode of the temporary file those that its target is to have. */
function setOwnerAndMode(
  temporary: TemporaryFile,
  old: Deno.FileInfo | undefined,
  newOwner: NewOwner,
  mode: number,
): void {
  let own = temporary.file.statSync();
  const uid = old?.uid ?? newOwner.uid ?? temporary.made.uid;
  const gid = old?.gid ?? newOwner.gid ?? temporary.made.gid;
  let ownerIsKept = true;
  if (uid !== own.uid || gid !== own.gid) {
    ownerIsKept = tryChown(temporary.path, uid, gid) || old === undefined;
    // A group that the agent is a member of it may give alone.
    if (!ownerIsKept) tryChown(temporary.path, null, gid);
    own = temporary.file.statSync();
  }
  let wanted = mode;
  if (mode === 0) {
    wanted = old === undefined ? NEW_FILE_MODE : old.mode! & MAX_MODE;
    // Bits that lend the rights of an owner must not lend those of another one.
    if (!ownerIsKept) wanted &= ~SETID;
  }
  // After chown, which takes the setuid and setgid bits away.
  if ((own.mode! & MAX_MODE) === wanted) return;
  try {
    Deno.chmodSync(temporary.path, wanted);
  } catch (error) {
    // File systems without modes (FAT, some network ones) refuse: fine where nobody has asked for one.
    if (mode !== 0) throw error;
  }
}

/** Syncs directories, so that what was renamed into them is on stable storage, and closes them. */
async function syncAndClose(descriptors: readonly number[]): Promise<void> {
  try {
    for (const fd of descriptors) {
      await new Promise<void>((resolve, reject) => {
        fs.fsync(fd, (error) => error ? reject(error) : resolve());
      });
    }
  } finally {
    descriptors.forEach((fd) => fs.closeSync(fd));
  }
}
