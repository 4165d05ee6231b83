// Names of local files, and the one way in which local files are replaced: whole or not at all.
// Must not know where the bytes come from.
import { CliError } from "./failure.ts";

/** Last component: `a/b/` -> `b`. Empty for `/`, `.` and `..`, which name no new thing. */
export function baseName(path: string): string {
  const name = path.replace(/\/+$/, "").split("/").at(-1)!;
  return name === "." || name === ".." ? "" : name;
}

/** The directory that `path` is an entry of. */
export function directoryOf(path: string): string {
  const trimmed = path.replace(/(?<=.)\/+$/, "");
  const at = trimmed.lastIndexOf("/");
  return at === -1 ? "." : at === 0 ? "/" : trimmed.slice(0, at);
}

/** `directory/name`, with one slash. */
export function joinPath(directory: string, name: string): string {
  return directory === ""
    ? name
    : `${directory.replace(/(?<=.)\/+$/, "").replace(/^\/$/, "")}/${name}`;
}

/** stat, or undefined where there is nothing. */
export async function statLocal(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.stat(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw localError("look at", path, error);
  }
}

/** An error of the local file system, with the path that it is about. */
export function localError(what: string, path: string, error: unknown): CliError {
  if (error instanceof CliError) return error;
  return new CliError(`cannot ${what} ${JSON.stringify(path)}: ${toReason(error)}`, {
    kind: "local",
    cause: error,
  });
}

function toReason(error: unknown): string {
  if (error instanceof Deno.errors.NotFound) return "it does not exist";
  if (error instanceof Deno.errors.PermissionDenied) return "permission denied";
  const message = error instanceof Error ? error.message : String(error);
  // Deno appends the system call with its path, which is said already.
  return message.replace(/ \(os error \d+\)(: .*)?$/s, "");
}

/** A small text file that an option names. @throws {CliError} */
export async function readLocalText(what: string, path: string): Promise<string> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    throw localError(`read the ${what}`, path, error);
  }
}

/**
 * Replaces the file `path` by `chunks`: through a temporary file in the same directory, so that it
 * has its old or its new content and a failure leaves nothing. Where `path` is a link, what it points to
 * is replaced; where it is a device or a pipe, it is written to.
 */
export async function replaceFile(
  path: string,
  mode: number | undefined,
  chunks: AsyncIterable<Uint8Array>,
): Promise<void> {
  const existing = await statLocal(path);
  if (existing !== undefined && !existing.isFile) {
    using file = await openLocal(path);
    for await (const chunk of chunks) await writeAll(file, chunk);
    return;
  }
  const target = existing === undefined ? path : await Deno.realPath(path);
  const directory = directoryOf(target);
  let temporary: string;
  try {
    temporary = await Deno.makeTempFile({ dir: directory, prefix: ".ateenv-", suffix: ".part" });
  } catch (error) {
    throw localError("write to directory", directory, error);
  }
  try {
    {
      using file = await openLocal(temporary);
      for await (const chunk of chunks) await writeAll(file, chunk);
    }
    await Deno.chmod(temporary, mode ?? (existing?.mode ?? 0o644) & 0o777);
    await Deno.rename(temporary, target);
  } catch (error) {
    await Deno.remove(temporary).catch(() => {});
    throw error instanceof Deno.errors.NotFound || error instanceof Deno.errors.PermissionDenied
      ? localError("write", target, error)
      : error;
  }
}

/** Writes all of `bytes`; one write(2) may take fewer. */
export async function writeAll(file: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  for (let rest = bytes; rest.length > 0;) rest = rest.subarray(await file.write(rest));
}

async function openLocal(path: string): Promise<Deno.FsFile> {
  try {
    return await Deno.open(path, { write: true });
  } catch (error) {
    throw localError("write", path, error);
  }
}
