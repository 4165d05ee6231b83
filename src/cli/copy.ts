// `ateenv cp`: which way, and what is there on both sides. `cp -r` rules: into a directory that exists,
// as a new name where nothing does.
import type { AteenvClient } from "../client/client.ts";
import { downloadDirectory, uploadDirectory } from "./copy_directory.ts";
import { downloadFile, uploadFile } from "./copy_file.ts";
import { CliError } from "./failure.ts";
import { baseName, joinPath, statLocal } from "./local_path.ts";
import { type RemoteEntry, statRemote } from "./sandbox_tools.ts";
import type { Session } from "./session.ts";

/** Options of `cp`. */
export interface CopyOptions {
  /** What to do with links out of a downloaded directory: leave out, or make as they are. */
  readonly skipLinks?: boolean;
  readonly keepLinks?: boolean;
}

/** What a copy did. */
export interface Copied {
  readonly files: number;
  readonly bytes: number;
}

/** Copies a file or directory into the sandbox or out of it; the path with a colon is the sandbox's. */
export async function copy(
  session: Session,
  source: string,
  destination: string,
  options: CopyOptions,
): Promise<number> {
  const isDownload = source.startsWith(":");
  if (isDownload === destination.startsWith(":")) {
    throw new CliError(
      "exactly one of the two paths starts with a colon, which means the sandbox",
      {
        advice: "for example: ateenv cp ./data :data",
      },
    );
  }
  await using client = await session.connect();
  const copied = isDownload
    ? await download(session, client, source.slice(1) || ".", destination, options)
    : await upload(session, client, source, destination.slice(1) || ".");
  await session.answer(copied, "");
  return 0;
}

async function download(
  session: Session,
  client: AteenvClient,
  remote: string,
  local: string,
  options: CopyOptions,
): Promise<Copied> {
  const entry = await statRemote(client, remote, session.io.interrupt);
  const existing = await statLocal(local);
  const wantsDirectory = existing?.isDirectory === true || local.endsWith("/");
  switch (entry.kind) {
    case "missing":
      throw new CliError(`${JSON.stringify(`:${remote}`)} does not exist in the sandbox`, {
        kind: "not-found",
        advice: "paths are relative to the workspace",
      });
    case "other":
      throw new CliError(`${JSON.stringify(`:${remote}`)} is neither a file nor a directory`, {
        kind: "failed-precondition",
      });
    case "directory": {
      if (existing !== undefined && !existing.isDirectory) {
        throw new CliError(`cannot copy a directory over the file ${JSON.stringify(local)}`, {
          kind: "local",
        });
      }
      // `dir/.` is the content of a directory, as cp has it.
      const name = isContent(remote) ? "" : baseName(remote);
      const target = existing === undefined || name === "" ? local : joinPath(local, name);
      return await downloadDirectory(session, client, remote, target, options);
    }
    default: {
      await tellUnknown(session, entry);
      const target = wantsDirectory ? joinPath(local, baseName(remote)) : local;
      return await downloadFile(session, client, remote, target, entry);
    }
  }
}

async function upload(
  session: Session,
  client: AteenvClient,
  local: string,
  remote: string,
): Promise<Copied> {
  const info = await statLocal(local);
  if (info === undefined) throw new CliError(`${JSON.stringify(local)} does not exist`);
  const entry = await statRemote(client, remote, session.io.interrupt);
  if (info.isDirectory) {
    if (entry.kind === "unknown") {
      throw new CliError(`cannot copy directories: ${entry.reason}`, {
        kind: "failed-precondition",
        advice: "copy the files one by one",
      });
    }
    const name = isContent(local) ? "" : baseName(await Deno.realPath(local));
    const target = entry.kind === "directory" && name !== "" ? joinPath(remote, name) : remote;
    return await uploadDirectory(session, client, local, target);
  }
  if (!info.isFile) {
    throw new CliError(`${JSON.stringify(local)} is neither a file nor a directory`, {
      advice: "send a stream with `ateenv put -`",
    });
  }
  await tellUnknown(session, entry);
  const intoDirectory = entry.kind === "directory" || remote.endsWith("/");
  const target = intoDirectory ? joinPath(remote, baseName(local)) : remote;
  return await uploadFile(session, client, local, target, info);
}

function isContent(path: string): boolean {
  return /(^|\/)\.{1,2}\/*$/.test(path);
}

async function tellUnknown(session: Session, entry: RemoteEntry): Promise<void> {
  if (entry.kind !== "unknown") return;
  await session.note(`${entry.reason}; copying a single file, without what stat would tell`);
}
