// Values of options: text -> what is meant, or an error that says how to write it.
// Pure.
import { InvalidArgumentError } from "commander";

const DURATION_UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

/** `500ms`, `30s`, `1.5m`, `2h` -> milliseconds. */
export function parseDuration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text);
  const durationMs = match === null ? NaN : Number(match[1]) * DURATION_UNITS_MS[match[2]!]!;
  if (!(durationMs > 0)) throw new InvalidArgumentError("Write it like 500ms, 30s, 5m or 1h.");
  return durationMs;
}

/** `K=V`, given any number of times. */
export function collectVariable(
  text: string,
  previous: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Write it like NAME=value.");
  return { ...previous, [text.slice(0, at)]: text.slice(at + 1) };
}

/** Where to start to read: stdout and stderr in bytes, `N` for both or `N,M`. */
export interface Offsets {
  readonly stdoutOffset: number;
  readonly stderrOffset: number;
}

/** `100` or `100,20` -> offsets of stdout and stderr. */
export function parseOffsets(text: string): Offsets {
  const match = /^(\d{1,15})(?:,(\d{1,15}))?$/.exec(text);
  if (match === null) {
    throw new InvalidArgumentError("Write it like 4096, or 4096,128 for stdout,stderr.");
  }
  return { stdoutOffset: Number(match[1]), stderrOffset: Number(match[2] ?? match[1]) };
}

/** `644`, `0755` -> permission bits. */
export function parseMode(text: string): number {
  if (!/^0?[0-7]{1,4}$/.test(text)) throw new InvalidArgumentError("Write it like 644 or 0755.");
  return parseInt(text, 8);
}

/** `:path` -> `path`: the colon that says "in the sandbox" may be left out where nothing else is meant. */
export function remotePath(text: string): string {
  return text.startsWith(":") ? text.slice(1) : text;
}
