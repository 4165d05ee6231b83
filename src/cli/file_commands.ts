// `cat` and `put`: one file, as a stream.
import type { UploadSource } from "../client/upload.ts";
import { CliError } from "./failure.ts";
import { localError, statLocal } from "./local_path.ts";
import { remotePath } from "./options.ts";
import type { Session } from "./session.ts";

/** Prints files of the sandbox. */
export async function cat(session: Session, paths: readonly string[]): Promise<number> {
  const { io } = session;
  await using client = await session.connect();
  for (const path of paths) {
    for await (const chunk of client.files.read(remotePath(path), { signal: io.interrupt })) {
      await io.stdout.write(chunk);
    }
  }
  return 0;
}

/** Writes a local file, or stdin for `-`, to a file of the sandbox. */
export async function put(
  session: Session,
  local: string,
  remote: string,
  options: { readonly mode?: number },
): Promise<number> {
  const source: UploadSource = local === "-" ? session.io.stdin() : await localSource(local);
  await using client = await session.connect();
  const path = remotePath(remote);
  const bytes = await client.files.write(path, source, {
    signal: session.io.interrupt,
    ...(options.mode === undefined ? {} : { mode: options.mode }),
  });
  await session.answer({ path, bytes }, "");
  return 0;
}

async function localSource(path: string): Promise<UploadSource> {
  // Opened once here, so that a missing file is told before anything is sent.
  const info = await statLocal(path);
  if (info === undefined) throw new CliError(`${JSON.stringify(path)} does not exist`);
  if (info.isDirectory) {
    throw new CliError(`${JSON.stringify(path)} is a directory`, {
      advice: "copy it with `ateenv cp`",
    });
  }
  try {
    using _ = await Deno.open(path);
  } catch (error) {
    throw localError("read", path, error);
  }
  return async () => (await Deno.open(path)).readable;
}
