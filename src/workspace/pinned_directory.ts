// A directory held by a descriptor, so that no rename or link on the way to it matters any more.
// Must not import path_policy.ts: what may be opened is decided in resolve.ts.
import fs from "node:fs";

/** open(2) on x86-64 and arm64; node:fs has no constant for it. Needs no permission on the directory. */
const O_PATH = 0o10000000;

/**
 * Opens directories and names what lies in them through `STATE/proc/self/fd/N`.
 *
 * Deno checks the path of lstat, readLink, mkdir, rename, remove, chmod and makeTempFile as text, so under
 * `--allow-read=STATE` the kernel gets `STATE/proc/self/fd/N/name` as it is and starts from the open
 * directory N. That is openat(2) in all but name. open() itself is different: Deno follows the links
 * first and then opens the outcome, so what was opened has to be checked afterwards.
 */
export class Pinner {
  readonly #descriptors: string;

  constructor(readonly stateDir: string) {
    this.#descriptors = `${stateDir}/proc/self/fd/`;
  }

  /** Opens the directory at `path`. Throws what the OS throws; symlinks on the way are followed. */
  openDirectory(path: string): PinnedDirectory {
    return new PinnedDirectory(this, fs.openSync(path, O_PATH | fs.constants.O_DIRECTORY));
  }

  /** The path through which descriptor `fd` of this process is reached. */
  descriptorPath(fd: number): string {
    return this.#descriptors + fd;
  }

  /**
   * The path of what is really open as `fd`, as the kernel sees it now. A name that has gone since
   * ends in " (deleted)": the text stays inside the directory that it was in.
   *
   * @throws {Deno.errors.InvalidData} if it is not UTF-8.
   */
  realPath(fd: number): string {
    return Deno.readLinkSync(this.descriptorPath(fd));
  }

  /** The uid that the agent's files get, without a permission for it: that of its /proc entry. */
  ownUid(): number | null {
    return Deno.statSync(`${this.stateDir}/proc/self`).uid;
  }
}

/** An open directory. Disposing twice does nothing. */
export class PinnedDirectory implements Disposable {
  #open = true;

  /** The path through which it is reached, whatever has become of its own. */
  readonly path: string;

  constructor(readonly pinner: Pinner, readonly fd: number) {
    this.path = pinner.descriptorPath(fd);
  }

  /** The path of the entry `name` of this directory. */
  child(name: string): string {
    return `${this.path}/${name}`;
  }

  /** Where the directory is now. @throws {Deno.errors.InvalidData} if that is not UTF-8. */
  realPath(): string {
    return Deno.readLinkSync(this.path);
  }

  [Symbol.dispose](): void {
    if (!this.#open) return;
    this.#open = false;
    fs.closeSync(this.fd);
  }
}
