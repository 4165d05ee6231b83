// What is written down of a process: a few lines in two small files, each complete or counted as not written.
// Pure: must not touch the disk.
import type { FormerLeader } from "./kill/hunt.ts";
import { PROCESS_ID_PATTERN } from "./process_id.ts";
import { type ExitReport, finishedInfo, type ProcessInfo, startedInfo } from "./process_info.ts";

/** First line of `started.json`: written before a client learns the id. */
export interface StartedRecord {
  readonly processId: string;
  readonly startedAt: Date;
}

/**
 * `finished.json`, or a further line of `started.json` where the disk had no room for another file: written
 * before anybody learns that the process is final.
 */
export interface FinishedRecord {
  readonly exit: ExitReport;
  readonly finishedAt: Date;
  /** Grows with each finish in this state directory: the wall clock may jump. */
  readonly order: number;
}

/** The text of a record. */
export function formatRecord(record: StartedRecord | FinishedRecord): string {
  return JSON.stringify(record) + "\n";
}

/** @returns undefined for anything but a whole record */
export function parseStarted(text: string | undefined): StartedRecord | undefined {
  const { processId, startedAt } = parseObject(text);
  const date = parseDate(startedAt);
  if (typeof processId !== "string" || !PROCESS_ID_PATTERN.test(processId)) return undefined;
  return date && { processId, startedAt: date };
}

/** @returns undefined for anything but a whole record */
export function parseFinished(text: string | undefined): FinishedRecord | undefined {
  const { exit, finishedAt, order } = parseObject(text);
  const date = parseDate(finishedAt);
  const { code, signal } = asObject(exit);
  if (date === undefined || !isCount(order) || !isCount(code)) return undefined;
  if (signal !== null && typeof signal !== "string") return undefined;
  return { exit: { code, signal }, finishedAt: date, order };
}

/** A further line of `started.json`, by the kill's helper. @returns undefined for anything else */
export function parseLeader(text: string | undefined): FormerLeader | undefined {
  const { leaderPid, startTicks, bootId } = parseObject(text);
  if (!isCount(leaderPid) || !isCount(startTicks) || typeof bootId !== "string") return undefined;
  return { leaderPid, startTicks, bootId };
}

/** The final state that both records tell. */
export function infoOf(started: StartedRecord, finished: FinishedRecord): ProcessInfo {
  const { processId, startedAt } = started;
  return finishedInfo(startedInfo(processId, startedAt), finished.exit, finished.finishedAt);
}

function parseObject(text: string | undefined): Record<string, unknown> {
  // The line end comes last: without it the text is cut short.
  if (text === undefined || !text.endsWith("\n")) return {};
  try {
    return asObject(JSON.parse(text));
  } catch {
    return {};
  }
}

function asObject(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? value as Record<string, unknown> : {};
}

function parseDate(value: unknown): Date | undefined {
  if (typeof value !== "string") return undefined;
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? undefined : date;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
