// Parsers of the values that settings take: sizes, durations, addresses, words.
// Pure: must not read the environment or the disk.

/** Thrown by a value parser; the message says what would be right. */
export class SettingError extends Error {
  override readonly name = "SettingError";
}

const SIZE_UNITS: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
};

/** Bytes of "65536", "64KiB", "16MiB" or "1GiB". */
export function parseSize(text: string): number {
  const match = /^(\d+)\s*(B|KiB|MiB|GiB|)$/.exec(text);
  const bytes = match === null ? NaN : Number(match[1]) * SIZE_UNITS[match[2]!]!;
  if (!Number.isSafeInteger(bytes)) {
    throw new SettingError("want a size: bytes, or a number with KiB, MiB or GiB (64KiB)");
  }
  return bytes;
}

const DURATION_UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Milliseconds of "250ms", "10s", "5m" or "1h"; "0" needs no unit. */
export function parseDuration(text: string): number {
  if (text === "0") return 0;
  const match = /^(\d+)(ms|s|m|h)$/.exec(text);
  const ms = match === null ? NaN : Number(match[1]) * DURATION_UNITS_MS[match[2]!]!;
  if (!Number.isSafeInteger(ms)) {
    throw new SettingError("want a duration with ms, s, m or h (10s)");
  }
  return ms;
}

/** A whole number, 0 or more. */
export function parseCount(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new SettingError("want a whole number, 0 or more");
  return Number(text);
}

/** "true"/"1" or "false"/"0". */
export function parseBoolean(text: string): boolean {
  if (text === "true" || text === "1") return true;
  if (text === "false" || text === "0") return false;
  throw new SettingError("want true or false");
}

/** An address to listen on. */
export interface ListenAddress {
  /** Host without brackets, as `Deno.listen` takes it. */
  readonly hostname: string;
  readonly port: number;
}

/** `ADDR:PORT` with IPv6 in brackets; an empty ADDR (":8080") is every interface. */
export function parseListen(text: string): ListenAddress {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]\s]*)):(\d{1,5})$/.exec(text);
  const port = match === null ? NaN : Number(match[3]);
  if (match === null || !(port <= 65535)) {
    throw new SettingError("want ADDR:PORT (127.0.0.1:8080, [::1]:8080)");
  }
  return { hostname: match[1] ?? (match[2] || "0.0.0.0"), port };
}

/** The value of PORT: that port on every interface. */
export function parsePort(text: string): ListenAddress {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65535) {
    throw new SettingError("want a port number, 0 to 65535");
  }
  return { hostname: "0.0.0.0", port: Number(text) };
}

/** The identity that children run under. */
export interface RunAs {
  readonly uid: number;
  readonly gid: number;
}

/** `UID[:GID]`; without GID it is the same number. */
export function parseRunAs(text: string): RunAs {
  const match = /^(\d{1,10})(?::(\d{1,10}))?$/.exec(text);
  const uid = Number(match?.[1]);
  const gid = Number(match?.[2] ?? match?.[1]);
  if (match === null || uid > 2 ** 32 - 2 || gid > 2 ** 32 - 2) {
    throw new SettingError("want UID or UID:GID, as numbers");
  }
  return { uid, gid };
}

/** One of a closed list of words. */
export function parseWord<const W extends string>(words: readonly W[]): (text: string) => W {
  return (text) => {
    const word = words.find((candidate) => candidate === text);
    if (word === undefined) throw new SettingError(`want ${words.join(", ")}`);
    return word;
  };
}

/** A path that is not empty; whether it exists is seen when it is used. */
export function parsePath(text: string): string {
  if (text === "") throw new SettingError("want a path");
  if (text.includes("\0")) throw new SettingError("a path cannot hold a NUL byte");
  return text;
}

/** Items between separators; empty ones are left out. */
export function parseList(separator: string): (text: string) => readonly string[] {
  return (text) => text.split(separator).filter((item) => item !== "");
}
