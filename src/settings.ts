// The table of settings: flag, variables, meaning.
// Pure: must not read the environment or the disk.
import {
  parseBoolean,
  parseCount,
  parseDuration,
  parseList,
  parseListen,
  parsePath,
  parsePort,
  parseRunAs,
  parseSize,
  parseWord,
} from "./setting_values.ts";

/** One row of the table. */
export interface Setting<T> {
  /** Without the dashes; aliases after the first. */
  readonly flags: readonly string[];
  /** Variables in the order in which they win. */
  readonly variables: readonly string[];
  readonly placeholder: string;
  readonly help: string;
  readonly parse: (text: string) => T;
  /** Parser of a variable's value, where it differs from the flag's. */
  readonly parseVariable?: Readonly<Record<string, (text: string) => T>>;
  /** A flag without a value means true. */
  readonly isBoolean?: boolean;
  /** Further occurrences add to the list. */
  readonly isRepeatable?: boolean;
  /** For start.sh only: not in --help. */
  readonly isInternal?: boolean;
}

function setting<T>(
  flags: string,
  variables: string,
  placeholder: string,
  help: string,
  parse: (text: string) => T,
  more: Partial<Setting<T>> = {},
): Setting<T> {
  return {
    flags: flags.split(" "),
    variables: variables === "" ? [] : variables.split(" "),
    placeholder,
    help,
    parse,
    ...more,
  };
}

const LOG_LEVEL_WORDS = ["error", "warn", "info", "debug"] as const;
const AUTH_WORDS = ["token", "mtls", "none"] as const;
const boolean = { isBoolean: true } as const;

/** Every setting there is. README's table says the same. */
export const SETTINGS = {
  listen: setting(
    "listen",
    "ATEENV_LISTEN PORT",
    "ADDR:PORT",
    "address to listen on (127.0.0.1:8080)",
    parseListen,
    { parseVariable: { PORT: parsePort } },
  ),
  unix: setting("unix", "ATEENV_UNIX", "PATH", "also listen on this unix socket", parsePath),
  workspace: setting(
    "workspace",
    "ATEENV_WORKSPACE WORKSPACE WORKDIR",
    "DIR",
    "directory that relative paths resolve against (./workspace, created)",
    parsePath,
  ),
  root: setting(
    "root",
    "ATEENV_ROOT",
    "DIR",
    "directory that files may be read and written in (the workspace; / = whole file system)",
    parsePath,
  ),
  readPath: setting(
    "read-path",
    "ATEENV_READ_PATHS",
    "DIR",
    "further directory that may be read; repeatable (variable: ':' between)",
    (text): readonly string[] => [parsePath(text)],
    { isRepeatable: true, parseVariable: { ATEENV_READ_PATHS: parseList(":") } },
  ),
  stateDir: setting(
    "state-dir log-dir",
    "ATEENV_STATE_DIR LOG_DIR",
    "DIR",
    "directory of records and output (/var/lib/ateenv/PORT, or one of the user's own)",
    parsePath,
  ),
  enableProcess: setting(
    "enable-process",
    "ATEENV_ENABLE_PROCESS",
    "BOOL",
    "serve ProcessService (true)",
    parseBoolean,
    boolean,
  ),
  enableFilesystem: setting(
    "enable-filesystem",
    "ATEENV_ENABLE_FILESYSTEM",
    "BOOL",
    "serve FileSystemService (true)",
    parseBoolean,
    boolean,
  ),
  allowRun: setting(
    "allow-run",
    "ATEENV_ALLOW_RUN",
    "LIST",
    "programs that may be started, ',' between (all)",
    parseList(","),
  ),
  runAs: setting(
    "run-as",
    "ATEENV_RUN_AS",
    "UID[:GID]",
    "identity of started processes (the agent's)",
    parseRunAs,
  ),
  auth: setting(
    "auth",
    "ATEENV_AUTH",
    "MODE",
    "token, mtls or none (none on loopback and unix socket, else it must be said)",
    parseWord(AUTH_WORDS),
  ),
  tokenFile: setting(
    "token-file",
    "ATEENV_TOKEN_FILE",
    "PATH",
    "file with the bearer token; read again when it changes",
    parsePath,
  ),
  tlsCert: setting("tls-cert", "ATEENV_TLS_CERT", "PATH", "server certificate, PEM", parsePath),
  tlsKey: setting("tls-key", "ATEENV_TLS_KEY", "PATH", "key of the certificate, PEM", parsePath),
  tlsClientCa: setting(
    "tls-client-ca",
    "ATEENV_TLS_CLIENT_CA",
    "PATH",
    "CA whose client certificates are let in, PEM",
    parsePath,
  ),
  maxProcesses: setting(
    "max-processes",
    "ATEENV_MAX_PROCESSES",
    "N",
    "processes running at once (from the descriptor limit, at most 256; 0 = no limit)",
    parseCount,
  ),
  processTimeout: setting(
    "process-timeout",
    "ATEENV_PROCESS_TIMEOUT",
    "DURATION",
    "kill what runs longer (0 = never)",
    parseDuration,
  ),
  killGrace: setting(
    "kill-grace",
    "ATEENV_KILL_GRACE",
    "DURATION",
    "SIGTERM this long before SIGKILL (0 = SIGKILL at once)",
    parseDuration,
  ),
  cgroup: setting(
    "cgroup",
    "ATEENV_CGROUP",
    "DIR",
    "writable cgroup v2 directory to put processes in (none)",
    parsePath,
  ),
  outputLimit: setting(
    "output-limit",
    "ATEENV_OUTPUT_LIMIT",
    "SIZE",
    "newest bytes kept of one stream (0 = all; at least 64KiB)",
    parseSize,
  ),
  spoolLimit: setting(
    "spool-limit",
    "ATEENV_SPOOL_LIMIT",
    "SIZE",
    "output kept of all processes together (1GiB)",
    parseSize,
  ),
  retain: setting(
    "retain",
    "ATEENV_RETAIN",
    "N",
    "finished processes that are remembered (1000)",
    parseCount,
  ),
  retainFor: setting(
    "retain-for",
    "ATEENV_RETAIN_FOR",
    "DURATION",
    "how long a finished process is remembered (1h)",
    parseDuration,
  ),
  maxMessage: setting(
    "max-message",
    "ATEENV_MAX_MESSAGE",
    "SIZE",
    "largest message taken (16MiB)",
    parseSize,
  ),
  fsync: setting(
    "fsync",
    "ATEENV_FSYNC",
    "BOOL",
    "WriteFile answers once the disk has it (false)",
    parseBoolean,
    boolean,
  ),
  shutdownGrace: setting(
    "shutdown-grace",
    "ATEENV_SHUTDOWN_GRACE",
    "DURATION",
    "longest time from SIGTERM to the end (10s)",
    parseDuration,
  ),
  logLevel: setting(
    "log-level",
    "ATEENV_LOG_LEVEL",
    "LEVEL",
    "error, warn, info or debug (info)",
    parseWord(LOG_LEVEL_WORDS),
  ),
  givenWorkspace: setting("given-workspace", "", "DIR", "", parsePath, { isInternal: true }),
  givenRoot: setting("given-root", "", "DIR", "", parsePath, { isInternal: true }),
  stateTemporary: setting("state-temporary", "", "BOOL", "", parseBoolean, {
    isBoolean: true,
    isInternal: true,
  }),
  stateShared: setting("state-shared", "", "BOOL", "", parseBoolean, {
    isBoolean: true,
    isInternal: true,
  }),
  descriptors: setting("descriptors", "", "N", "", parseCount, { isInternal: true }),
  commit: setting("commit", "", "HASH", "", parsePath, { isInternal: true }),
  mistakes: setting("mistakes", "", "LIST", "", parseList("\n"), { isInternal: true }),
  stripEnv: setting("strip-env", "", "LIST", "", parseList(":"), { isInternal: true }),
} as const;

/** Name of a setting. */
export type SettingName = keyof typeof SETTINGS;

/** Values as given; what was not given is absent. */
export type SettingValues = {
  -readonly [N in SettingName]?: ReturnType<typeof SETTINGS[N]["parse"]>;
};
