// Reading a regular file in pieces, with one piece read ahead while the consumer is busy.
// Must not decide which file is meant: that is resolve.ts.
import fs from "node:fs";
import { cancelledError } from "../errors.ts";
import { MAX_PIECE_BYTES } from "../limits.ts";
import { ChangedMeanwhile, changedOr } from "./changed_meanwhile.ts";
import { describeKind, fileError, fileNotFound, refused } from "./file_error.ts";
import type { Resolver, WorkspacePath } from "./resolve.ts";

/**
 * O_NONBLOCK: a FIFO that took the file's place after the look cannot hold up the agent. O_NOCTTY: nor can
 * a terminal become its controlling one. O_NOFOLLOW counts only where Deno has all permissions and hands
 * the path to the kernel as it is; with scoped ones it follows links first (see Pinner).
 */
const READ_FLAGS = fs.constants.O_RDONLY | fs.constants.O_NONBLOCK | fs.constants.O_NOCTTY |
  fs.constants.O_NOFOLLOW;

const PAGE_BYTES = 4096;
/** Piece size where the size says nothing: beyond it, and in /proc, where all sizes are 0. */
const UNEXPECTED_BYTES = 64 * 1024;

/** A file that is open for reading. */
interface OpenFile {
  readonly fd: number;
  /** Its size when it was opened: a hint only. */
  readonly size: number;
}

/**
 * Opens what `requested` means, if it is a regular file.
 *
 * @throws {AgentError} as in the contract's table; nothing but a regular file is opened.
 */
function openRegularFile(resolver: Resolver, requested: string): OpenFile {
  return resolver.withPath(requested, "read", (path) => {
    requireRegular(path);
    let fd: number;
    try {
      fd = fs.openSync(path.path, READ_FLAGS);
    } catch (error) {
      throw changedOr(error);
    }
    try {
      // open() went by a path (see Pinner): ask what it met. A file that was replaced meanwhile, as
      // every WriteFile does, is as good as the one seen before.
      if (!resolver.policy.allows(resolver.pinner.realPath(fd), "read")) {
        throw new ChangedMeanwhile();
      }
      const info = fs.fstatSync(fd);
      if (!info.isFile()) throw new ChangedMeanwhile();
      if (resolver.isAgentsFile(info)) throw resolver.policy.refusal(requested);
      return { fd, size: info.size };
    } catch (error) {
      fs.closeSync(fd);
      throw error;
    }
  });
}

/** Refuses what is no regular file, before it is opened. */
function requireRegular(path: WorkspacePath): void {
  const { info, requested } = path;
  if (info === undefined) throw fileNotFound(requested);
  if (info.isFile) return;
  throw refused("read", requested, describeKind(info));
}

/** One pread(2) on a thread of the runtime's pool; resolves to a part of a new buffer, empty at the end. */
function readPiece(fd: number, length: number, position: number): Promise<Uint8Array> {
  const buffer = new Uint8Array(length);
  return new Promise((resolve, reject) => {
    fs.read(fd, buffer, 0, length, position, (error, count) => {
      if (error) reject(error);
      else resolve(count === length ? buffer : buffer.subarray(0, count));
    });
  });
}

/**
 * The content of a file, in pieces of at most {@linkcode MAX_PIECE_BYTES}: what is there until the end of
 * the file, also while it grows or shrinks. Holds at most two pieces that the consumer has not got. The
 * descriptor is closed when the iteration ends in whatever way, and at once when `signal` is aborted,
 * even if the consumer never comes back.
 *
 * @throws {AgentError} as in the contract's table; cancelled when `signal` is aborted.
 */
export async function* readFile(
  resolver: Resolver,
  requested: string,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  if (signal.aborted) throw cancelledError();
  const { fd, size } = openRegularFile(resolver, requested);
  let position = 0;
  let ahead: Promise<Uint8Array> | undefined;
  let closing: Promise<unknown> | undefined;
  const close = () => {
    // A read in flight must not meet another file that got the same descriptor.
    if (closing === undefined) {
      if (ahead === undefined) fs.closeSync(fd);
      closing = ahead?.catch(() => {}).finally(() => fs.closeSync(fd)) ?? Promise.resolve();
    }
    return closing;
  };
  signal.addEventListener("abort", close, { once: true });
  const readNext = () => {
    // Room for one byte more than is expected, so that a short read shows the end.
    const expected = position < size
      ? Math.ceil((size - position + 1) / PAGE_BYTES) * PAGE_BYTES
      : UNEXPECTED_BYTES;
    const length = Math.min(MAX_PIECE_BYTES, expected);
    const piece = readPiece(fd, length, position);
    piece.catch(() => {}); // It may fail while the consumer is busy; the await below tells.
    return piece;
  };
  try {
    ahead = readNext();
    for (;;) {
      const piece = await ahead;
      ahead = undefined;
      if (signal.aborted) throw cancelledError();
      if (piece.length === 0) return;
      position += piece.length;
      // Less than was asked for, and not less than was expected: the end, without asking again.
      const isEnd = piece.byteLength < piece.buffer.byteLength && size > 0 && position >= size;
      if (!isEnd) ahead = readNext();
      yield piece;
      if (signal.aborted) throw cancelledError();
      if (ahead === undefined) return;
    }
  } catch (error) {
    throw fileError(error, "read", requested);
  } finally {
    signal.removeEventListener("abort", close);
    await close();
  }
}
