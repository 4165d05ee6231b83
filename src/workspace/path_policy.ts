// Which paths a client may name, decided on text alone: nothing here looks at the disk.
// Must not import node:fs or use Deno's file functions.
import { AgentError } from "../errors.ts";

/** What a call wants to do with a path. Read paths are open to reads only. */
export type Access = "read" | "write";

/** Configuration of {@linkcode PathPolicy}: absolute, canonical paths (what `pwd -P` prints). */
export interface PathPolicyOptions {
  /** Directory that calls are confined to; "/" lifts the confinement. */
  readonly root: string;
  /** Directory that relative paths resolve against. */
  readonly workspace: string;
  /** Directories outside the root that may be read, too. */
  readonly readPaths: readonly string[];
  /** Files and directories of the agent itself, out of reach even where the root holds them. */
  readonly forbidden: readonly string[];
  /** Other names of directories: a path below `from` means the same path below `to`. */
  readonly aliases?: readonly { readonly from: string; readonly to: string }[];
}

/** A path as a client gave it, taken apart. */
export interface ParsedPath {
  /** The text of the request, for messages. */
  readonly requested: string;
  /** Components from the file system's root on: no empty ones and no `.`, but `..` is kept. */
  readonly components: readonly string[];
  /** The path ends with `/`, `.` or `..`, so that it can only mean a directory. */
  readonly meansDirectory: boolean;
}

/** Linux: NAME_MAX, in bytes. */
const MAX_NAME_BYTES = 255;
/** Linux: PATH_MAX, in bytes, without the NUL byte at the end. */
const MAX_PATH_BYTES = 4095;

const encoder = new TextEncoder();

function isLonger(text: string, maxBytes: number): boolean {
  // A UTF-16 unit is at most three bytes: most names need no encoding to be known as short.
  return text.length * 3 > maxBytes &&
    (text.length > maxBytes || encoder.encode(text).length > maxBytes);
}

/** Whether `path` is `directory` or below it. Both absolute and without `.`, `..` and empty components. */
export function isWithin(directory: string, path: string): boolean {
  return directory === "/" || path === directory ||
    (path.startsWith(directory) && path.charCodeAt(directory.length) === 47 /* "/" */);
}

/** `directory` and `name` as one path. */
export function joinPath(directory: string, name: string): string {
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

/** The path above `path`; "/" for "/". */
export function parentPath(path: string): string {
  return path.slice(0, Math.max(1, path.lastIndexOf("/")));
}

/** The lexical half of the confinement. The half on disk is `resolve.ts`. */
export class PathPolicy {
  readonly root: string;
  readonly workspace: string;
  readonly forbidden: readonly string[];
  readonly #readRoots: readonly string[];
  readonly #writeRoots: readonly string[];
  readonly #aliases: readonly { readonly from: string; readonly to: string }[];

  /** @throws {AgentError} invalid-argument if a configured path is not absolute and normal. */
  constructor(options: PathPolicyOptions) {
    for (
      const path of [options.root, options.workspace, ...options.readPaths, ...options.forbidden]
    ) {
      if (!/^\/(?!$)|^\/$/.test(path) || /\/\/|\/\.\.?(\/|$)|.\/$|\0|\ufffd/.test(path)) {
        throw new AgentError("invalid-argument", `not an absolute, canonical path: "${path}"`);
      }
    }
    this.root = options.root;
    this.workspace = options.workspace;
    this.forbidden = options.forbidden;
    this.#writeRoots = [options.root];
    this.#readRoots = [options.root, ...options.readPaths];
    this.#aliases = options.aliases ?? [];
  }

  /**
   * Takes a request's path apart.
   *
   * @throws {AgentError} invalid-argument: empty, a NUL byte, or too long.
   */
  parse(requested: string): ParsedPath {
    if (requested === "") throw new AgentError("invalid-argument", "file path cannot be empty");
    if (requested.includes("\0")) {
      throw new AgentError("invalid-argument", "file path cannot contain a NUL byte");
    }
    this.checkLength(requested);
    const components: string[] = [];
    let last = "";
    for (const name of this.#absolute(requested).split("/")) {
      last = name;
      if (name === "" || name === ".") continue;
      if (isLonger(name, MAX_NAME_BYTES)) {
        throw new AgentError(
          "invalid-argument",
          `file path has a name longer than ${MAX_NAME_BYTES} bytes`,
        );
      }
      components.push(name);
    }
    return {
      requested,
      components,
      meansDirectory: last === "" || last === "." || last === "..",
    };
  }

  /** @throws {AgentError} invalid-argument if `path` is longer than what the kernel takes. */
  checkLength(path: string): void {
    if (isLonger(path, MAX_PATH_BYTES)) {
      throw new AgentError("invalid-argument", `file path is longer than ${MAX_PATH_BYTES} bytes`);
    }
  }

  #absolute(requested: string): string {
    if (!requested.startsWith("/")) return `${this.workspace}/${requested}`;
    for (const { from, to } of this.#aliases) {
      if (isWithin(from, requested)) return to + requested.slice(from === "/" ? 0 : from.length);
    }
    return requested;
  }

  /** Whether the real path `real` may be reached for `access`. */
  allows(real: string, access: Access): boolean {
    return this.#isInRoots(real, access) && !this.isForbidden(real);
  }

  #isInRoots(real: string, access: Access): boolean {
    for (const root of access === "read" ? this.#readRoots : this.#writeRoots) {
      if (isWithin(root, real)) return true;
    }
    return false;
  }

  /** Whether `real` is the agent's own or lies below something that is. */
  isForbidden(real: string): boolean {
    return this.forbidden.some((path) => isWithin(path, real));
  }

  /** The refusal of a path that leads out: the same whether or not there is something. */
  refusal(requested: string): AgentError {
    return new AgentError(
      "permission-denied",
      `access denied: path "${requested}" is outside sandbox root directory "${this.root}"`,
    );
  }
}
