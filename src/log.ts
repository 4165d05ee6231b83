// The agent's own log: one short JSON object a line on stderr. Never output, payloads or secrets.
// A leaf: imports nothing of ours.

/** Severity, least severe last. */
export const LOG_LEVELS = ["error", "warn", "info", "debug"] as const;
export type LogLevel = typeof LOG_LEVELS[number];

/** What may stand in a log line beside time, level and message. */
export type LogFields = Readonly<
  Record<string, string | number | boolean | null | undefined | readonly string[]>
>;

/** A place to put log lines. */
export interface Logger {
  error(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  debug(message: string, fields?: LogFields): void;
  /** Whether a line of that level would be written: skip building its fields where not. */
  enabled(level: LogLevel): boolean;
}

/** Longest value written, in UTF-16 units: a line stays short whatever a client sends. */
const MAX_VALUE_LENGTH = 512;

function clip(value: LogFields[string]): LogFields[string] {
  return typeof value === "string" && value.length > MAX_VALUE_LENGTH
    ? value.slice(0, MAX_VALUE_LENGTH) + "…"
    : value;
}

/**
 * A logger that writes lines of `level` and more severe ones through `write` (default: stderr, in one
 * synchronous write each, so that a line written before the process ends is never lost).
 */
export function createLogger(
  level: LogLevel,
  write: (line: string) => void = writeStderr,
  now: () => Date = () => new Date(),
): Logger {
  const threshold = LOG_LEVELS.indexOf(level);
  const emit = (at: LogLevel, message: string, fields: LogFields = {}) => {
    if (LOG_LEVELS.indexOf(at) > threshold) return;
    const line: Record<string, unknown> = { time: now().toISOString(), level: at, msg: message };
    for (const [name, value] of Object.entries(fields)) line[name] = clip(value);
    write(JSON.stringify(line) + "\n");
  };
  return {
    error: (message, fields) => emit("error", message, fields),
    warn: (message, fields) => emit("warn", message, fields),
    info: (message, fields) => emit("info", message, fields),
    debug: (message, fields) => emit("debug", message, fields),
    enabled: (at) => LOG_LEVELS.indexOf(at) <= threshold,
  };
}

const encoder = new TextEncoder();

function writeStderr(line: string): void {
  try {
    Deno.stderr.writeSync(encoder.encode(line));
  } catch {
    // A closed stderr must not take the agent down.
  }
}

/** Name and code of an error, for a log line: never its stack, which holds paths of the build. */
export function errorFields(error: unknown): LogFields {
  if (!(error instanceof Error)) return { error: String(error) };
  const cause = error.cause instanceof Error
    ? `${error.cause.name}: ${error.cause.message}`
    : undefined;
  return { error: `${error.name}: ${error.message}`, ...(cause === undefined ? {} : { cause }) };
}
