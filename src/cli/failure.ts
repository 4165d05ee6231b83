// How the CLI's own failures are told: one line that says what to do next, or one JSON object.
// Must not print.
import { AteenvError } from "../client/error.ts";

/** A failure of the CLI itself, `run` and `wait` included: no command of a user exits like that. */
export const OWN_FAILURE = 125;

/** `--timeout` was reached. */
export const TIMED_OUT = 124;

/** Our output was closed: 128 + SIGPIPE, as any program in a pipe. */
export const OUTPUT_CLOSED = 141;

/** A failure with its advice. */
export class CliError extends Error {
  override readonly name = "CliError";
  /** What the user can do, as the end of a sentence. */
  readonly advice: string | undefined;
  readonly exitCode: number;
  readonly kind: string;

  constructor(
    message: string,
    options: { advice?: string; exitCode?: number; kind?: string; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.advice = options.advice;
    this.exitCode = options.exitCode ?? OWN_FAILURE;
    this.kind = options.kind ?? "usage";
  }
}

const ADVICE: Readonly<Record<string, string>> = {
  "unavailable":
    "check that the agent runs there (`ateenv doctor`), or name another with --address or ATEENV_ADDRESS",
  "unauthenticated": "give the agent's token with --token-file or ATEENV_TOKEN_FILE",
  "outcome-unknown": "look before you repeat it",
  "resource-exhausted": "wait for other work to end, or raise the agent's limit",
  "out-of-range": "read on from the first byte that is kept, with --since-offset",
  "interrupted": "copy it again",
  "unimplemented": "the agent was started without this service, or is of another version",
  "internal": "see the agent's log on its stderr",
  "deadline-exceeded": "try again; `ateenv doctor` shows whether the agent answers",
};

/** Where kind alone says too little: what the message tells of the case. The first that fits counts. */
const CASES: readonly (readonly [kind: string, message: RegExp, advice: string])[] = [
  [
    "unavailable",
    /before secure TLS connection|wrong version number|InvalidContentType|received corrupt message/i,
    "the agent seems to speak no TLS there: use http://, without --tls-ca",
  ],
  [
    "unavailable",
    /certificate|self.signed|TLS|SSL/i,
    "check --tls-ca, and --tls-cert and --tls-key if the agent asks for them",
  ],
  [
    "unavailable",
    /socket hang up|Failed to connect$/,
    "check that it is an agent that listens there; if it wants TLS, use https:// or --tls-ca",
  ],
  [
    "internal",
    /^Received HTTP status code/,
    "check that it is an agent that listens there",
  ],
  [
    "not-found",
    /^process /,
    "it was forgotten (--retain, --retain-for of the agent), or is another agent's",
  ],
  [
    "unimplemented",
    /\.ProcessService\//,
    "processes are switched off on this agent (--enable-process=false)",
  ],
  [
    "unimplemented",
    /\.FileSystemService\//,
    "files are switched off on this agent (--enable-filesystem=false)",
  ],
];

/** Any thrown value as a failure to tell. */
export function toCliError(error: unknown): CliError {
  if (error instanceof CliError) return error;
  if (error instanceof AteenvError) {
    const known = CASES.find(([kind, message]) =>
      kind === error.kind && message.test(error.message)
    );
    const advice = known?.[2] ?? ADVICE[error.kind];
    return new CliError(error.message, {
      ...(advice === undefined ? {} : { advice }),
      kind: error.kind,
      cause: error,
    });
  }
  const message = error instanceof Error ? error.message : String(error);
  return new CliError(message, { kind: "local", cause: error });
}

/** The line for people. */
export function toLine(error: CliError): string {
  // A message of the agent may have several lines; whoever reads a log wants one.
  const message = error.message.replaceAll(/\s*\n\s*/g, " ").trim();
  return `ateenv: ${message.replace(/\.$/, "")}${
    error.advice === undefined ? "" : `; ${error.advice}`
  }\n`;
}

/** The object for programs. */
export function toJson(error: CliError): string {
  const { message, kind, advice } = error;
  return JSON.stringify({ error: { kind, message, ...(advice === undefined ? {} : { advice }) } }) +
    "\n";
}
