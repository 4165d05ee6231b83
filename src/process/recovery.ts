// What an agent that is gone left behind: served again, ended, or set aside.
// Must not know the table; gives it what it found.
import { AgentError } from "../errors.ts";
import type { Clock } from "../clock.ts";
import { errorFields, type Logger } from "../log.ts";
import type { SpoolStore } from "../spool/mod.ts";
import type { KillTarget } from "./kill/hunt.ts";
import { ProcessEntry } from "./process_entry.ts";
import { KILLED_EXIT } from "./process_info.ts";
import { type FinishedRecord, infoOf, type StartedRecord } from "./process_record.ts";
import type { RecordStore, StoredProcess } from "./record_store.ts";

/** What {@linkcode recoverProcesses} needs. */
export interface RecoveryOptions {
  readonly records: RecordStore;
  readonly spools: SpoolStore;
  readonly asidePath: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Ends whatever carries the marker of a process, and its leader's session. */
  readonly kill: (target: KillTarget) => Promise<void>;
  /** The output of the process went for want of space. */
  readonly onEvict: (processId: string) => void | Promise<void>;
}

/** A process of an earlier agent, final. */
interface Recovered {
  readonly started: StartedRecord;
  readonly finished: FinishedRecord;
}

/**
 * Takes over the records of an earlier agent. What was running when it died is killed, and becomes
 * final as if by SIGKILL; what no client knows of is killed and deleted.
 * @returns final entries in the order of their finish, and the order for the next one
 */
export async function recoverProcesses(
  options: RecoveryOptions,
): Promise<{ entries: ProcessEntry[]; nextOrder: number }> {
  const { records, log } = options;
  const { processes, foreign } = await records.list();
  for (const name of foreign) await setAside(name, options, "not made by an agent");
  const unfinished = processes.filter(({ started, finished }) => !started || !finished);
  await Promise.all(unfinished.map((stored) => kill(stored, options)));
  let nextOrder = 1 + Math.max(0, ...processes.map(({ finished }) => finished?.order ?? 0));
  const recovered: Recovered[] = [];
  for (const stored of processes) {
    const { started, finished } = stored;
    if (started === undefined) {
      log.info("process of an earlier agent deleted: its start was never answered", {
        processId: stored.processId,
      });
      await records.remove(stored.processId);
    } else if (finished !== undefined) recovered.push({ started, finished });
    else recovered.push({ started, finished: terminate(stored, nextOrder++, options) });
  }
  recovered.sort((a, b) => a.finished.order - b.finished.order);
  const entries: ProcessEntry[] = [];
  for (const { started, finished } of recovered) {
    const entry = await restore(started, finished, options);
    if (entry !== undefined) entries.push(entry);
  }
  return { entries, nextOrder };
}

async function kill(
  { processId, leader }: StoredProcess,
  { kill, log }: RecoveryOptions,
): Promise<void> {
  try {
    await kill({ processId, leader: undefined, formerLeader: leader });
  } catch (error) {
    log.error("process of an earlier agent cannot be killed", { processId, ...errorFields(error) });
  }
}

function terminate(
  { processId }: StoredProcess,
  order: number,
  { clock, log, records }: RecoveryOptions,
): FinishedRecord {
  const finished = { exit: KILLED_EXIT, finishedAt: clock.wallTime(), order };
  log.warn("process was running when its agent died: killed, status set by this agent", {
    processId,
  });
  try {
    records.writeFinished(processId, finished);
  } catch (error) {
    log.error("final state cannot be stored", { processId, ...errorFields(error) });
  }
  return finished;
}

async function restore(
  started: StartedRecord,
  finished: FinishedRecord,
  options: RecoveryOptions,
): Promise<ProcessEntry | undefined> {
  const { records, spools, clock, onEvict } = options;
  const { processId } = started;
  try {
    const spool = await spools.recover(records.directoryOf(processId), {
      onEvict: () => onEvict(processId),
    });
    const info = infoOf(started, finished);
    const entry = new ProcessEntry(info, spool);
    // Its age on the monotonic clock is unknown: it counts from now.
    entry.publish(info, finished.order, clock.nowMs());
    return entry;
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    await setAside(processId, options, error.message);
    return undefined;
  }
}

async function setAside(
  name: string,
  { records, asidePath, log }: RecoveryOptions,
  why: string,
): Promise<void> {
  try {
    log.warn("set aside", { name, why, to: await records.setAside(name, asidePath) });
  } catch (error) {
    log.error("cannot be set aside", { name, why, ...errorFields(error) });
  }
}
