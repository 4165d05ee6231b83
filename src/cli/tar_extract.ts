// A tar stream from the sandbox -> a local directory. The stream is hostile until shown otherwise.
// Writes to a fresh directory first, in which there is no link; only what was complete is put in place.
import { createTarDecoder, type TarHeader } from "modern-tar";
import { CliError } from "./failure.ts";
import { directoryOf, localError, writeAll } from "./local_path.ts";
import { refuse, staysInside, toComponents } from "./tar_names.ts";

/** What was copied, and what could not be. */
export interface ExtractResult {
  readonly files: number;
  /** Devices, pipes and sockets, which are not copied. */
  readonly special: number;
  /** Links that lead out of the directory, left out on request. */
  readonly linksOut: number;
}

/** How to extract. */
export interface ExtractOptions {
  /**
   * Links that lead out of the directory: fail, leave them out, or make them as they are. Nothing is ever
   * written through a link, so that kept ones are a danger only to who follows them later.
   */
  readonly linksOut: "refuse" | "skip" | "keep";
}

/** Permission bits only: what comes from a sandbox does not become setuid. */
const PERMISSION_BITS = 0o777;

/**
 * Extracts `archive` to the directory `destination`: made if it is missing, else merged into, files
 * replaced one by one. Anything wrong with the archive leaves it untouched.
 *
 * @throws {CliError} for names and links that lead out, for a damaged archive and for conflicts.
 */
export async function extractTar(
  archive: ReadableStream<Uint8Array>,
  destination: string,
  options: ExtractOptions,
): Promise<ExtractResult> {
  const existing = await lstat(destination);
  const merge = existing !== undefined;
  const dir = merge ? destination : directoryOf(destination);
  let staging: string;
  try {
    // On the same file system as what will be in its place.
    staging = await Deno.makeTempDir({ dir, prefix: ".ateenv-", suffix: ".part" });
  } catch (error) {
    throw localError("write to directory", dir, error);
  }
  try {
    const stage = new Stage(staging, options);
    await stage.fill(archive);
    await stage.placeLinks();
    if (merge) {
      await checkMerge(staging, destination);
      await merged(staging, destination);
    } else {
      await Deno.rename(staging, destination);
    }
    await stage.setDirectoryModes(destination, merge);
    return stage.result;
  } finally {
    await Deno.remove(staging, { recursive: true }).catch(() => {});
  }
}

class Stage {
  readonly #root: string;
  readonly #options: ExtractOptions;
  readonly #files = new Set<string>();
  readonly #directories = new Map<string, number>([["", 0o755]]);
  readonly #links = new Map<string, string>();
  #special = 0;
  #linksOut = 0;

  constructor(root: string, options: ExtractOptions) {
    this.#root = root;
    this.#options = options;
  }

  get result(): ExtractResult {
    return {
      files: this.#files.size + this.#links.size,
      special: this.#special,
      linksOut: this.#linksOut,
    };
  }

  async fill(archive: ReadableStream<Uint8Array>): Promise<void> {
    for await (const { header, body } of archive.pipeThrough(createTarDecoder({ strict: true }))) {
      const components = toComponents(header.name);
      switch (header.type) {
        case "directory":
          await this.#addDirectory(components, (header.mode ?? 0o755) & PERMISSION_BITS);
          break;
        case "file":
          await this.#addFile(components, header, body);
          continue;
        case "symlink":
          await this.#addLink(components, header.linkname ?? "");
          break;
        case "link":
          await this.#addHardLink(components, header.linkname ?? "");
          break;
        default:
          this.#special += 1;
      }
      await body.cancel();
    }
  }

  /** Last of all, so that nothing is ever written through one. */
  async placeLinks(): Promise<void> {
    for (const [path, target] of this.#links) await Deno.symlink(target, this.#local(path));
  }

  /** After everything is in place: a directory may be without write permission. */
  async setDirectoryModes(destination: string, isMerge: boolean): Promise<void> {
    const paths = [...this.#directories.keys()].sort().reverse();
    for (const path of paths) {
      if (path === "" && isMerge) continue;
      await Deno.chmod(
        path === "" ? destination : `${destination}/${path}`,
        this.#directories.get(path)!,
      );
    }
  }

  async #addDirectory(components: readonly string[], mode: number): Promise<void> {
    const path = components.join("/");
    await this.#makeDirectories(components);
    // The owner has to be able to go on writing into it, and to remove it again.
    this.#directories.set(path, mode | 0o700);
  }

  async #addFile(
    components: readonly string[],
    header: TarHeader,
    body: ReadableStream<Uint8Array>,
  ): Promise<void> {
    const path = await this.#claim(components);
    // A later entry of the same name replaces the earlier one; that may be a hard link's inode.
    if (this.#files.has(path)) await Deno.remove(this.#local(path));
    {
      using file = await Deno.open(this.#local(path), { write: true, createNew: true });
      for await (const chunk of body) await writeAll(file, chunk);
    }
    await Deno.chmod(this.#local(path), (header.mode ?? 0o644) & PERMISSION_BITS);
    if (header.mtime !== undefined && !Number.isNaN(header.mtime.getTime())) {
      await Deno.utime(this.#local(path), header.mtime, header.mtime);
    }
    this.#files.add(path);
  }

  async #addLink(components: readonly string[], target: string): Promise<void> {
    const path = await this.#claim(components);
    if (this.#files.has(path)) throw refuse(path, "it is there twice");
    const { linksOut } = this.#options;
    if (staysInside(components, target)) this.#links.set(path, target);
    else if (target === "" || /[\0\uFFFD]/.test(target)) throw refuse(path, "no link says that");
    else if (linksOut === "keep") this.#links.set(path, target);
    else if (linksOut === "skip") this.#linksOut += 1;
    else {
      throw new CliError(
        `refused ${JSON.stringify(path)} from the sandbox: it is a link out of the directory, to ${
          JSON.stringify(target)
        }`,
        {
          kind: "refused",
          advice: "nothing was copied; --skip-links leaves such links out, --keep-links makes them",
        },
      );
    }
  }

  async #addHardLink(components: readonly string[], target: string): Promise<void> {
    const source = toComponents(target).join("/");
    if (!this.#files.has(source)) {
      throw refuse(target, "it is a hard link to nothing in the archive");
    }
    const path = await this.#claim(components);
    if (source === path) return;
    if (this.#files.has(path)) await Deno.remove(this.#local(path));
    await Deno.link(this.#local(source), this.#local(path));
    this.#files.add(path);
  }

  /** The path of an entry that is no directory, with its parents made. */
  async #claim(components: readonly string[]): Promise<string> {
    const path = components.join("/");
    if (path === "" || this.#directories.has(path)) throw refuse(path, "it is also a directory");
    await this.#makeDirectories(components.slice(0, -1));
    this.#links.delete(path);
    return path;
  }

  async #makeDirectories(components: readonly string[]): Promise<void> {
    for (let depth = 1; depth <= components.length; depth++) {
      const path = components.slice(0, depth).join("/");
      if (this.#directories.has(path)) continue;
      if (this.#files.has(path) || this.#links.has(path)) {
        throw refuse(components.join("/"), `${JSON.stringify(path)} on the way is no directory`);
      }
      await Deno.mkdir(this.#local(path), { mode: 0o755 });
      this.#directories.set(path, 0o755);
    }
  }

  #local(path: string): string {
    return `${this.#root}/${path}`;
  }
}

/** Finds conflicts before anything is moved. A link where a directory is needed may lead anywhere. */
async function checkMerge(from: string, to: string): Promise<void> {
  for await (const entry of Deno.readDir(from)) {
    const target = `${to}/${entry.name}`;
    const existing = await lstat(target);
    if (existing === undefined) continue;
    if (existing.isDirectory !== entry.isDirectory) {
      throw new CliError(
        `cannot copy ${entry.isDirectory ? "a directory" : "a file"} over ${
          JSON.stringify(target)
        }: ${
          existing.isSymlink
            ? "it is a link"
            : existing.isDirectory
            ? "it is a directory"
            : "it is none"
        }`,
        { kind: "local", advice: "nothing was copied" },
      );
    }
    if (entry.isDirectory) await checkMerge(`${from}/${entry.name}`, target);
  }
}

async function merged(from: string, to: string): Promise<void> {
  for await (const entry of Deno.readDir(from)) {
    const source = `${from}/${entry.name}`;
    const target = `${to}/${entry.name}`;
    if (entry.isDirectory && await lstat(target) !== undefined) await merged(source, target);
    else await Deno.rename(source, target);
  }
}

async function lstat(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.lstat(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw localError("look at", path, error);
  }
}
