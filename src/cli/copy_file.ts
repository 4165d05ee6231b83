// `ateenv cp` of one file, through ReadFile and WriteFile: any size in constant memory, atomic on both
// sides, permission bits kept.
import type { AteenvClient } from "../client/client.ts";
import type { Copied } from "./copy.ts";
import { baseName, localError, replaceFile } from "./local_path.ts";
import { openProgress, type Progress } from "./progress.ts";
import type { RemoteEntry } from "./sandbox_tools.ts";
import type { Session } from "./session.ts";

const READ_BYTES = 1024 * 1024;

/** The sandbox's `remote` -> the local file `local`. */
export async function downloadFile(
  session: Session,
  client: AteenvClient,
  remote: string,
  local: string,
  entry: RemoteEntry,
): Promise<Copied> {
  const { io } = session;
  const [size, mode] = entry.kind === "file" ? [entry.size, entry.mode] : [undefined, undefined];
  using progress = openProgress(io.stderr, baseName(remote), size);
  const counter = new Counter(progress);
  const chunks = client.files.read(remote, { signal: io.interrupt });
  await replaceFile(local, mode, counter.count(chunks));
  return { files: 1, bytes: counter.bytes };
}

/** The local file `local` -> the sandbox's `remote`. */
export async function uploadFile(
  session: Session,
  client: AteenvClient,
  local: string,
  remote: string,
  info: Deno.FileInfo,
): Promise<Copied> {
  const { io } = session;
  using progress = openProgress(io.stderr, baseName(local), info.size);
  const source = () => {
    progress.restart();
    return new Counter(progress).count(readLocal(local));
  };
  const bytes = await client.files.write(remote, source, {
    signal: io.interrupt,
    mode: (info.mode ?? 0) & 0o777,
  });
  return { files: 1, bytes };
}

/** Counts what passes. */
export class Counter {
  readonly #progress: Progress;
  bytes = 0;

  constructor(progress: Progress) {
    this.#progress = progress;
  }

  async *count(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) {
      this.bytes += chunk.length;
      this.#progress.add(chunk.length);
      yield chunk;
    }
  }
}

/** In pieces that fill a message; `readable` of Deno's files gives 64 KiB ones. */
async function* readLocal(path: string): AsyncGenerator<Uint8Array> {
  let file: Deno.FsFile;
  try {
    file = await Deno.open(path);
  } catch (error) {
    throw localError("read", path, error);
  }
  using _ = file;
  for (;;) {
    const buffer = new Uint8Array(READ_BYTES);
    const count = await file.read(buffer);
    if (count === null) return;
    yield buffer.subarray(0, count);
  }
}
