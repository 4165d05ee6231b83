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
  /** Which boot that is; empty where the kernel does not tell. */
  readonly bootId: string;
  readonly processes: ReadonlyMap<number, ProcessEntry>;
  /** Whether the search for markers has worked. */
  readonly markersRead: boolean;
}

/** Value of the marker with which the search for markers proves that it works. */
export const SENTINEL_MARKER = "0".repeat(32);

/** Ticks per second in /proc on every Linux (USER_HZ). */
export const TICKS_PER_SECOND = 100;

// pid (comm) state, then numbers: ppid pgrp session ... num_threads(20) itrealvalue starttime(22) ...
// The comm may hold anything but NUL, newlines and parentheses too, but only 15 bytes of it for a process
// (63 for a kernel thread): the last parenthesis is the kernel's.
const STAT = /^(\d+) \(([^]*)\) ([A-Za-z])((?: -?\d+){19,})\n$/;
const RECORD = /^\/proc\/(\d+|self)\/(stat|environ):/;
const MARKER = /^[A-Za-z_]+=([0-9a-f]{32})$/;

const THREADS_FIELD = 16;
const START_FIELD = 18;

/**
 * Parses the helper's answer: a line `U <uptime> <boot id>`, then records that end in NUL: `/proc/PID/stat:` and
 * the file, or `/proc/PID/environ:` and a variable. What is neither is passed over: a file that could
 * not be read whole is that of a process that is gone.
 * @throws TypeError when it is no such answer
 */
export function parseSnapshot(text: string): ProcessSnapshot {
  const uptime = /^U (\d+(?:\.\d+)?) ([0-9a-f-]*)\n/.exec(text);
  if (uptime === null) throw new TypeError("Cannot parse a process snapshot: no uptime");
  const stats: Omit<ProcessEntry, "marker">[] = [];
  const markers = new Map<number, string>();
  let markersRead = false;
  for (const record of text.slice(uptime[0].length).split("\0")) {
    const [prefix, owner, file] = RECORD.exec(record) ?? [];
    if (prefix === undefined) continue;
    const content = record.slice(prefix.length);
    if (file === "stat") {
      const stat = STAT.exec(content);
      if (stat !== null) stats.push(toEntry(stat));
      continue;
    }
    const marker = MARKER.exec(content)?.[1];
    if (marker === SENTINEL_MARKER) markersRead = true;
    // The first one counts, as for getenv.
    else if (marker !== undefined && !markers.has(Number(owner))) {
      markers.set(Number(owner), marker);
    }
  }
  const withMarker = stats.map((entry) => ({ ...entry, marker: markers.get(entry.pid) }));
  return {
    bootTicks: Math.round(Number(uptime[1]) * TICKS_PER_SECOND),
    bootId: uptime[2]!,
    processes: new Map(withMarker.map((entry) => [entry.pid, entry])),
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
