// The directories of processes on disk: made, written to, listed, removed.
// Must not know what a process does; segments in a directory are the spool's.
import { osErrorCode } from "../errors.ts";
import type { FormerLeader } from "./kill/hunt.ts";
import {
  type FinishedRecord,
  formatRecord,
  parseFinished,
  parseLeader,
  parseStarted,
  type StartedRecord,
} from "./process_record.ts";
import { PROCESS_ID_PATTERN } from "./process_id.ts";

const STARTED = "started.json";
const FINISHED = "finished.json";

/** What a directory tells of its process. */
export interface StoredProcess {
  readonly processId: string;
  /** Undefined: no client has ever learned the id. */
  readonly started: StartedRecord | undefined;
  /** Undefined: it was running when its agent died. */
  readonly finished: FinishedRecord | undefined;
  /** Undefined where it could not be written down. */
  readonly leader: FormerLeader | undefined;
}

/** How many directories are read at once. */
const PARALLEL_READS = 16;

/**
 * Records below one directory. Errors are those of the OS. What a start and an exit need is synchronous:
 * it takes microseconds, and it works when no thread is to be had.
 */
export class RecordStore {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  /** Where the files of a process are. */
  directoryOf(processId: string): string {
    return `${this.#root}/${processId}`;
  }

  /** Makes the directory of a new process. */
  create(processId: string): string {
    const directory = this.directoryOf(processId);
    Deno.mkdirSync(directory, { mode: 0o700 });
    return directory;
  }

  /** The file that `writeStarted` makes. */
  startedPathOf(processId: string): string {
    return `${this.directoryOf(processId)}/${STARTED}`;
  }

  writeStarted(record: StartedRecord): void {
    const path = this.startedPathOf(record.processId);
    Deno.writeTextFileSync(path, formatRecord(record), { mode: 0o600 });
  }

  writeFinished(processId: string, record: FinishedRecord): void {
    const path = `${this.directoryOf(processId)}/${FINISHED}`;
    const text = formatRecord(record);
    try {
      Deno.writeTextFileSync(path, text, { mode: 0o600 });
    } catch (error) {
      if (!["ENOSPC", "EDQUOT"].includes(osErrorCode(error) ?? "")) throw error;
      // A full disk has room left in the block that the other record has begun.
      Deno.writeTextFileSync(this.startedPathOf(processId), text, { append: true, create: false });
    }
  }

  /** Removes the directory of a process that was not started: nothing but records is in it. */
  removeUnstarted(processId: string): void {
    try {
      Deno.removeSync(this.directoryOf(processId), { recursive: true });
    } catch {
      // Never made, or left to the next start of an agent.
    }
  }

  /** Removes all that there is of a process. What is gone already is no error. */
  async remove(processId: string): Promise<void> {
    try {
      await Deno.remove(this.directoryOf(processId), { recursive: true });
    } catch (error) {
      if (osErrorCode(error) !== "ENOENT") throw error;
    }
  }

  /** All there is: processes, and the names of things that no agent has made. */
  async list(): Promise<{ processes: StoredProcess[]; foreign: string[] }> {
    const foreign: string[] = [];
    const ids: string[] = [];
    for await (const entry of Deno.readDir(this.#root)) {
      const isOurs = entry.isDirectory && PROCESS_ID_PATTERN.test(entry.name);
      (isOurs ? ids : foreign).push(entry.name);
    }
    const processes: StoredProcess[] = [];
    for (let from = 0; from < ids.length; from += PARALLEL_READS) {
      const some = ids.slice(from, from + PARALLEL_READS);
      processes.push(...await Promise.all(some.map((id) => this.#read(id))));
    }
    return { processes, foreign };
  }

  /** Moves something out of the way, under a name of its own. @returns where to */
  async setAside(name: string, asidePath: string): Promise<string> {
    for (let attempt = 0;; attempt++) {
      const target = `${asidePath}/${name}${attempt === 0 ? "" : `.${attempt}`}`;
      try {
        await Deno.lstat(target);
      } catch (error) {
        if (osErrorCode(error) !== "ENOENT") throw error;
        await Deno.rename(`${this.#root}/${name}`, target);
        return target;
      }
    }
  }

  async #read(processId: string): Promise<StoredProcess> {
    const directory = this.directoryOf(processId);
    // Each line with its end: without it, it is cut short.
    const [first, ...more] = (await readSmallFile(`${directory}/${STARTED}`))?.match(/.*\n/g) ?? [];
    const started = parseStarted(first);
    const finished = parseFinished(await readSmallFile(`${directory}/${FINISHED}`));
    return {
      processId,
      started: started?.processId === processId ? started : undefined,
      finished: finished ?? firstOf(more, parseFinished),
      leader: firstOf(more, parseLeader),
    };
  }
}

function firstOf<T>(lines: readonly string[], parse: (line: string) => T | undefined) {
  return lines.map(parse).find((record) => record !== undefined);
}

/** A record takes about 150 bytes; what is much larger is none. */
const MAX_RECORD_BYTES = 4096;

async function readSmallFile(path: string): Promise<string | undefined> {
  try {
    const info = await Deno.lstat(path);
    if (!info.isFile || info.size > MAX_RECORD_BYTES) return undefined;
    return await Deno.readTextFile(path);
  } catch (error) {
    if (osErrorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}
