// What all processes looked like at one moment, from the text that the helper prints.
// Pure: must not touch the OS.

/** One process, as /proc/PID/stat and its environment tell. */
export interface ProcessEntry {
  readonly pid: number;
  /** Name as the kernel cuts it; any bytes. For messages only. */
  readonly name: string;
  /** R, S, D, T (stopped), t (traced), Z (zombie), X (dead), I. */
  readonly state: string;
  readonly parent: number;
  readonly processGroup: number;
  readonly session: number;
  /** Clock ticks since boot. With the pid: the identity of a process. */
  readonly startTicks: number;
  /** False for what runs no code any more, and only waits for its parent to notice. */
  readonly alive: boolean;
  /** Value of the marker variable it was started with. */
  readonly marker: string | undefined;
}

/** All processes that could be seen. The kernel gives no atomic view: read one after the other. */
export interface ProcessSnapshot {
  /** Clock ticks since boot when it was begun. */
  readonly bootTicks: number;
  readonly processes: ReadonlyMap<number, ProcessEntry>;
  /** Whether the search for markers has worked. */
  readonly markersRead: boolean;
}

/** Value of the marker with which the search for markers proves that it works. */
export const SENTINEL_MARKER = "0".repeat(32);

/** Ticks per second in /proc on every Linux (USER_HZ). */
export const TICKS_PER_SECOND = 100;

// pid (comm) state, then numbers: ppid pgrp session ... num_threads(20) itrealvalue starttime(22) ...
// The comm may hold anything, newlines and parentheses too, but only 15 bytes of it for a process
// (63 for a kernel thread): too few to look like the 19 numbers that have to follow.
const STAT = /(\d+) \(([\s\S]{0,63}?)\) ([A-Za-z])((?: -?\d+){19,})\n/y;
const MARKER = /\/proc\/(\d+|self)\/environ:[A-Za-z_]+=([0-9a-f]*)\0/y;

const THREADS_FIELD = 16;
const START_FIELD = 18;

/**
 * Parses the helper's answer: `U <uptime>`, the stat records, `M`, the marker records.
 * @throws TypeError when it is no such answer
 */
export function parseSnapshot(text: string): ProcessSnapshot {
  const header = /^U (\d+(?:\.\d+)?)[^\n]*\n/.exec(text);
  if (header === null) throw new TypeError("Cannot parse a process snapshot: no header");
  const stats: Omit<ProcessEntry, "marker">[] = [];
  let position = header[0].length;
  while (text[position] !== "M") {
    STAT.lastIndex = position;
    const record = STAT.exec(text);
    if (record !== null) {
      stats.push(toEntry(record));
      position = STAT.lastIndex;
      continue;
    }
    // Not a record (a process that went away while it was read): go on at the next line.
    position = text.indexOf("\n", position) + 1;
    if (position === 0) throw new TypeError("Cannot parse a process snapshot: it is cut short");
  }
  const markers = new Map<number, string>();
  let markersRead = false;
  MARKER.lastIndex = position + 2;
  for (let record = MARKER.exec(text); record !== null; record = MARKER.exec(text)) {
    if (record[2] === SENTINEL_MARKER) markersRead = true;
    // The first one counts, as for getenv.
    const pid = Number(record[1]);
    if (!markers.has(pid)) markers.set(pid, record[2]!);
  }
  return {
    bootTicks: Math.round(Number(header[1]) * TICKS_PER_SECOND),
    processes: new Map(
      stats.map((entry) => [entry.pid, { ...entry, marker: markers.get(entry.pid) }]),
    ),
    markersRead,
  };
}

function toEntry(record: RegExpExecArray): Omit<ProcessEntry, "marker"> {
  const numbers = record[4]!.trimStart().split(" ").map(Number);
  const state = record[3]!;
  return {
    pid: Number(record[1]),
    name: record[2]!,
    state,
    parent: numbers[0]!,
    processGroup: numbers[1]!,
    session: numbers[2]!,
    startTicks: numbers[START_FIELD]!,
    // The first thread of a process may have ended while others run on.
    alive: !"ZXx".includes(state) || numbers[THREADS_FIELD]! > 1,
  };
}
