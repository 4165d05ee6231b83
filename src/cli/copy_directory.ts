// `ateenv cp` of a directory: one tar stream, made by `tar` on the sandbox's side and by us on ours.
// Must not decide what goes where: cp's rules are in copy.ts.
import { toReadableStream } from "../client/byte_stream.ts";
import type { AteenvClient } from "../client/client.ts";
import { AteenvError } from "../client/error.ts";
import type { ProcessHandle } from "../client/process.ts";
import type { Copied, CopyOptions } from "./copy.ts";
import { Counter } from "./copy_file.ts";
import { CliError } from "./failure.ts";
import { baseName } from "./local_path.ts";
import { openProgress } from "./progress.ts";
import { needTool, runTool, startTool, ToolMissing, toOperand } from "./sandbox_tools.ts";
import type { Session } from "./session.ts";
import { extractTar } from "./tar_extract.ts";
import { measureDirectory, packDirectory } from "./tar_pack.ts";

/** Enough of what `tar` says to tell what is wrong. */
const MAX_STDERR_BYTES = 4_096;

/** How long to clean up in the sandbox after a failure or Ctrl-C. */
const CLEAN_UP_MS = 5_000;

/**
 * GNU tar exits with 1, and says no more than this, where files were written to while they were read. To
 * other tars 1 is any failure.
 */
const FILES_CHANGED_EXIT = 1;
const FILES_CHANGED =
  /^(tar: .*: ([Ff]ile changed as we read it|File removed before we read it)\n)+/;

/** The sandbox's directory `remote` -> the local directory `local`. */
export async function downloadDirectory(
  session: Session,
  client: AteenvClient,
  remote: string,
  local: string,
  options: CopyOptions,
): Promise<Copied> {
  const { io } = session;
  const total = io.stderr.isTerminal
    ? await measureRemote(client, remote, io.interrupt)
    : undefined;
  const process = await startTool(
    client,
    ["tar", "-c", "-f", "-", "-C", toOperand(remote), "."],
    io.interrupt,
  );
  const tar = new RemoteTar(process);
  try {
    using progress = openProgress(io.stderr, baseName(remote) || remote, total);
    const counter = new Counter(progress);
    const archive = toReadableStream(
      (signal) => counter.count(tar.archive(signal)),
      io.interrupt,
    );
    const result = await extractTar(archive, local, {
      linksOut: options.keepLinks ? "keep" : options.skipLinks ? "skip" : "refuse",
    });
    if (tar.hasChanged) await session.note("files were written to while they were copied");
    if (result.special > 0) {
      await session.note(`left out ${result.special} devices, pipes, sockets`);
    }
    if (result.linksOut > 0) {
      await session.note(`left out ${result.linksOut} links that lead out of the directory`);
    }
    return { files: result.files, bytes: counter.bytes };
  } catch (error) {
    await process.kill({ signal: AbortSignal.timeout(CLEAN_UP_MS) }).catch(() => {});
    // What was wrong with the stream says more than what the reader made of it.
    throw tar.failure ?? error;
  }
}

/** The local directory `local` -> the sandbox's directory `remote`. */
export async function uploadDirectory(
  session: Session,
  client: AteenvClient,
  local: string,
  remote: string,
): Promise<Copied> {
  const { io } = session;
  const size = await measureDirectory(local);
  // Processes have no stdin: the archive has to be a file for a moment.
  const archive = `.ateenv-cp-${crypto.randomUUID()}.tar`;
  session.lastWords = `${archive} may stay in the sandbox: ateenv run -- rm -f ${archive}`;
  try {
    {
      using progress = openProgress(io.stderr, baseName(local) || local, size.bytes);
      const source = () => {
        progress.restart();
        return packDirectory(local, (bytes) => progress.add(bytes));
      };
      await client.files.write(archive, source, { signal: io.interrupt, mode: 0o600 });
    }
    await needTool(client, ["mkdir", "-p", toOperand(remote)], io.interrupt);
    // -o: files belong to whom the agent runs as; -p: modes as they are, whatever the umask.
    await needTool(
      client,
      ["tar", "-x", "-p", "-o", "-f", archive, "-C", toOperand(remote)],
      io.interrupt,
    );
  } catch (error) {
    throw error instanceof ToolMissing
      ? new CliError(`cannot copy directories: ${error.message}`, {
        kind: error.kind,
        advice: "copy the files one by one",
        cause: error,
      })
      : error;
  } finally {
    await runTool(client, ["rm", "-f", archive], AbortSignal.timeout(CLEAN_UP_MS)).catch(() => {});
  }
  if (size.special > 0) await session.note(`left out ${size.special} devices, pipes, sockets`);
  return { files: size.files, bytes: size.bytes };
}

/** Size of a directory, for the bar; undefined where `du` cannot tell. */
async function measureRemote(
  client: AteenvClient,
  remote: string,
  signal: AbortSignal,
): Promise<number | undefined> {
  try {
    const { stdout } = await runTool(client, ["du", "-sk", toOperand(remote)], signal);
    const kibibytes = /^(\d+)\s/.exec(stdout)?.[1];
    return kibibytes === undefined ? undefined : Number(kibibytes) * 1024;
  } catch (error) {
    if (error instanceof ToolMissing) return undefined;
    throw error;
  }
}

/** A `tar -c` in the sandbox: its archive, and whether it was a whole one. */
class RemoteTar {
  readonly #process: ProcessHandle;
  #stderr = "";
  /** Why the archive cannot be used. */
  failure: unknown;
  hasChanged = false;

  constructor(process: ProcessHandle) {
    this.#process = process;
  }

  /** The archive, whose end is not reached unless tar has succeeded. */
  async *archive(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    try {
      for await (const { source, data } of this.#process.output({ signal })) {
        if (source === "stdout") yield data;
        else if (this.#stderr.length < MAX_STDERR_BYTES) {
          this.#stderr += new TextDecoder().decode(data);
        }
      }
      const { exitCode } = await this.#process.wait({ signal });
      if (exitCode === FILES_CHANGED_EXIT && FILES_CHANGED.test(this.#stderr)) {
        this.hasChanged = true;
      } else if (exitCode !== 0) {
        throw new CliError(
          `tar failed in the sandbox: ${this.#stderr.trim() || `exit code ${exitCode}`}`,
          { kind: "failed-precondition" },
        );
      }
    } catch (error) {
      this.failure ??= toArchiveError(error);
      throw error;
    }
  }
}

function toArchiveError(error: unknown): unknown {
  if (!(error instanceof AteenvError) || error.kind !== "out-of-range") return error;
  return new CliError(
    "the agent no longer keeps all of the archive: the directory is larger than what it spools",
    {
      kind: error.kind,
      advice: "copy parts of it, or start the agent with a larger --spool-limit",
      cause: error,
    },
  );
}
