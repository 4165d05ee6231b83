// A local directory -> a tar stream, as it is read.
// Must not follow links: they are copied as links.
import { createTarPacker, type TarPackController } from "modern-tar";
import { CliError } from "./failure.ts";
import { localError } from "./local_path.ts";

const READ_BYTES = 256 * 1024;
const PERMISSION_BITS = 0o777;

/** An entry below a directory. */
interface LocalEntry {
  /** Relative to the directory; `.` for the directory itself. */
  readonly name: string;
  readonly path: string;
  readonly info: Deno.FileInfo;
}

/** How much there is to copy. */
export interface DirectorySize {
  readonly files: number;
  readonly bytes: number;
  /** Devices, pipes and sockets, which are not copied. */
  readonly special: number;
}

async function* walk(root: string): AsyncGenerator<LocalEntry> {
  const pending = ["."];
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    const path = name === "." ? root : `${root}/${name}`;
    const info = await lstatLocal(path, name === ".");
    yield { name, path, info };
    if (!info.isDirectory) continue;
    const names: string[] = [];
    try {
      for await (const entry of Deno.readDir(path)) names.push(entry.name);
    } catch (error) {
      throw localError("read directory", path, error);
    }
    names.sort().reverse();
    for (const child of names) pending.push(name === "." ? child : `${name}/${child}`);
  }
}

async function lstatLocal(path: string, isRoot: boolean): Promise<Deno.FileInfo> {
  try {
    // The directory that was named may be a link to one.
    return await (isRoot ? Deno.stat(path) : Deno.lstat(path));
  } catch (error) {
    throw localError("look at", path, error);
  }
}

/** Looks at everything below `root` once. */
export async function measureDirectory(root: string): Promise<DirectorySize> {
  let files = 0;
  let bytes = 0;
  let special = 0;
  for await (const { info } of walk(root)) {
    if (info.isFile) bytes += info.size;
    if (info.isFile || info.isSymlink) files += 1;
    else if (!info.isDirectory) special += 1;
  }
  return { files, bytes, special };
}

/** Packs everything below `root`, names relative to it. `onBytes` is told of content as it is read. */
export function packDirectory(
  root: string,
  onBytes: (bytes: number) => void,
): ReadableStream<Uint8Array> {
  const { readable, controller } = createTarPacker();
  const pack = async () => {
    for await (const entry of walk(root)) await addEntry(controller, entry, onBytes);
    controller.finalize();
  };
  // The error reaches whoever reads the stream.
  pack().catch((error) => controller.error(error));
  return readable;
}

async function addEntry(
  controller: TarPackController,
  { name, path, info }: LocalEntry,
  onBytes: (bytes: number) => void,
): Promise<void> {
  const header = {
    name,
    mode: (info.mode ?? 0o755) & PERMISSION_BITS,
    ...(info.mtime === null ? {} : { mtime: info.mtime }),
    size: 0,
  };
  if (info.isDirectory) {
    await controller.add({ ...header, name: `${name}/`, type: "directory" }).close();
  } else if (info.isSymlink) {
    const linkname = await Deno.readLink(path);
    await controller.add({ ...header, type: "symlink", linkname }).close();
  } else if (info.isFile) {
    await addFile(controller, header, path, onBytes);
  }
}

async function addFile(
  controller: TarPackController,
  header: { name: string; mode: number; mtime?: Date; size: number },
  path: string,
  onBytes: (bytes: number) => void,
): Promise<void> {
  let file: Deno.FsFile;
  try {
    file = await Deno.open(path);
  } catch (error) {
    throw localError("read", path, error);
  }
  using _ = file;
  // The header says how many bytes follow. What is appended meanwhile is left out.
  const { size } = await file.stat();
  const writer = controller.add({ ...header, size, type: "file" }).getWriter();
  let left = size;
  while (left > 0) {
    // A new buffer each time: the packer passes it on.
    const buffer = new Uint8Array(Math.min(READ_BYTES, left));
    const count = await file.read(buffer);
    if (count === null) {
      throw new CliError(`${JSON.stringify(path)} became shorter while it was copied`, {
        kind: "local",
        advice: "copy again once nothing writes to it",
      });
    }
    await writer.write(buffer.subarray(0, count));
    left -= count;
    onBytes(count);
  }
  await writer.close();
}
