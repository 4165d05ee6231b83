// Arguments and variables -> one frozen AgentConfig, or all mistakes at once.
// Pure: must not read the environment or the disk, nor know gRPC.
import { MIN_OUTPUT_LIMIT_BYTES } from "./limits.ts";
import type { LogLevel } from "./log.ts";
import { type ListenAddress, type RunAs, SettingError } from "./setting_values.ts";
import { type Setting, type SettingName, SETTINGS, type SettingValues } from "./settings.ts";

/** Everything the agent can be told. Paths are absolute once start.sh has canonicalised them. */
export interface AgentConfig {
  readonly listen: ListenAddress;
  readonly unixPath: string | undefined;
  readonly workspace: string;
  readonly root: string;
  readonly readPaths: readonly string[];
  /** Names that the user gave to directories, which really have another one. */
  readonly aliases: readonly { readonly from: string; readonly to: string }[];
  readonly stateDir: string;
  /** The state directory is removed at the end (port 0). */
  readonly isStateTemporary: boolean;
  /** The state directory is the default one below a shared temporary directory. */
  readonly isStateShared: boolean;
  readonly enableProcess: boolean;
  readonly enableFilesystem: boolean;
  /** Programs that may be started; undefined: all. */
  readonly allowRun: readonly string[] | undefined;
  readonly runAs: RunAs | undefined;
  readonly auth: "none" | "token" | "mtls";
  readonly tokenFile: string | undefined;
  readonly tls: TlsFiles | undefined;
  /** 0: no limit; undefined: from the descriptor limit. */
  readonly maxProcesses: number | undefined;
  /** Hard limit of open descriptors; undefined: not known. */
  readonly descriptors: number | undefined;
  /** 0: never. */
  readonly processTimeoutMs: number;
  readonly killGraceMs: number;
  readonly cgroup: string | undefined;
  /** 0: all output is kept. */
  readonly outputLimitBytes: number;
  readonly spoolLimitBytes: number;
  readonly retain: number;
  readonly retainForMs: number;
  readonly maxMessageBytes: number;
  readonly fsync: boolean;
  readonly shutdownGraceMs: number;
  readonly logLevel: LogLevel;
  /** Names of variables that children must not inherit, beside the fixed ones. */
  readonly stripEnv: readonly string[];
}

/** PEM files of the port. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly clientCaFile?: string;
}

/** What the command line asks for. */
export type ParsedCommand =
  | { readonly action: "help" }
  /** `commit` is known only where start.sh runs in a clone; a built agent has it in its version. */
  | { readonly action: "version"; readonly commit: string | undefined }
  | { readonly action: "serve" | "check-policy"; readonly config: AgentConfig }
  | { readonly action: "error"; readonly mistakes: readonly string[] };

/** Whether only this machine can reach the address. */
export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "::1" || /^127(\.\d{1,3}){3}$/.test(hostname);
}

/** Value of an environment variable; undefined where it is not set. */
export type ReadVariable = (name: string) => string | undefined;

type AnySetting = Setting<unknown>;
const ROWS = Object.entries(SETTINGS) as [SettingName, AnySetting][];
const ROW_BY_FLAG = new Map(
  ROWS.flatMap(([name, row]) => row.flags.map((flag) => [flag, { name, row }] as const)),
);

interface Occurrence {
  readonly flag: string;
  readonly text: string;
}

/** Splits `args` into occurrences per setting; what cannot be placed goes to `mistakes`. */
function splitArgs(args: readonly string[], mistakes: string[]) {
  const given = new Map<SettingName, Occurrence[]>();
  const words = new Set<string>();
  for (let index = 0; index < args.length; index++) {
    const arg = args[index]!;
    const match = /^--([a-z][a-z-]*)(?:=([^]*))?$/.exec(arg);
    const flag = match?.[1] ?? "";
    if (arg === "-h") {
      words.add("help");
      continue;
    }
    if (match?.[2] === undefined && ["help", "version", "check-policy"].includes(flag)) {
      words.add(flag);
      continue;
    }
    const found = ROW_BY_FLAG.get(flag);
    if (found === undefined) {
      mistakes.push(`${arg}: no such flag; --help lists them`);
      continue;
    }
    let text = match?.[2];
    if (text === undefined) {
      const next = args[index + 1];
      if (next !== undefined && !next.startsWith("--")) {
        text = next;
        index++;
      } else if (found.row.isBoolean) {
        text = "true";
      } else {
        mistakes.push(`--${flag}: the value is missing; want --${flag} ${found.row.placeholder}`);
        continue;
      }
    }
    given.set(found.name, [...given.get(found.name) ?? [], { flag, text }]);
  }
  return { given, words };
}

function parseInto<T>(label: string, text: string, parse: (text: string) => T, mistakes: string[]) {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof SettingError)) throw error;
    mistakes.push(`${label}: ${error.message}; got ${JSON.stringify(text)}`);
    return undefined;
  }
}

function readValue(
  row: AnySetting,
  flags: readonly Occurrence[],
  env: ReadVariable,
  mistakes: string[],
): unknown {
  if (flags.length > 0) {
    if (row.isRepeatable) {
      return flags.flatMap(({ flag, text }) => parseInto(`--${flag}`, text, row.parse, mistakes));
    }
    const first = flags[0]!;
    const other = flags.find(({ text }) => text !== first.text);
    if (other !== undefined) {
      mistakes.push(
        `--${first.flag} ${first.text} and --${other.flag} ${other.text} disagree; give one`,
      );
    }
    return parseInto(`--${first.flag}`, first.text, row.parse, mistakes);
  }
  for (const variable of row.variables) {
    const text = env(variable);
    // An empty variable is an unset one, as in `PORT= command`.
    if (text === undefined || text === "") continue;
    return parseInto(variable, text, row.parseVariable?.[variable] ?? row.parse, mistakes);
  }
  return undefined;
}

function resolveAuth(values: SettingValues, listen: ListenAddress, mistakes: string[]) {
  const { tlsCert, tlsKey, tlsClientCa, tokenFile } = values;
  const say = (mistake: string) => mistakes.push(mistake);
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    say("--tls-cert and --tls-key go together; give both or neither");
  }
  if (tlsClientCa !== undefined && tlsCert === undefined) {
    say("--tls-client-ca needs --tls-cert and --tls-key");
  }
  const auth = values.auth ?? (tokenFile ? "token" : tlsClientCa ? "mtls" : undefined);
  if (auth === "token" && tokenFile === undefined) say("--auth token needs --token-file");
  if (auth === "mtls" && tlsClientCa === undefined) say("--auth mtls needs --tls-client-ca");
  if (auth !== "token" && auth !== undefined && tokenFile !== undefined) {
    say(`--auth ${auth} and --token-file disagree; drop one`);
  }
  if (auth === "none" && tlsClientCa !== undefined) {
    say("--auth none and --tls-client-ca disagree; drop one");
  }
  if (auth === undefined && !isLoopback(listen.hostname)) {
    say(
      `${listen.hostname}:${listen.port} can be reached from outside: give --token-file, ` +
        "--tls-client-ca, or say --auth none",
    );
  }
  if (auth === undefined && values.runAs !== undefined) {
    say(
      "--run-as: the code inside could reach the port: give --token-file, --tls-client-ca, " +
        "or say --auth none",
    );
  }
  return auth ?? "none";
}

/**
 * Parses the command line (without the program's name) over the variables that `env` reads. A flag wins over its
 * variable; variables win in the order of the table; an empty variable counts as unset.
 */
export function parseConfig(
  args: readonly string[],
  env: ReadVariable,
): ParsedCommand {
  const mistakes: string[] = [];
  const { given, words } = splitArgs(args, mistakes);
  if (words.has("help")) return { action: "help" };
  if (words.has("version")) return { action: "version", commit: given.get("commit")?.[0]?.text };

  const values: SettingValues = {};
  for (const [name, row] of ROWS) {
    const value = readValue(row, given.get(name) ?? [], env, mistakes);
    if (value !== undefined) (values as Record<string, unknown>)[name] = value;
  }

  // What start.sh has found on its way.
  mistakes.unshift(...values.mistakes ?? []);

  const listen = values.listen ?? { hostname: "127.0.0.1", port: 8080 };
  const auth = resolveAuth(values, listen, mistakes);
  const outputLimitBytes = values.outputLimit ?? 0;
  if (outputLimitBytes !== 0 && outputLimitBytes < MIN_OUTPUT_LIMIT_BYTES) {
    mistakes.push(`--output-limit: want 0 or at least 64KiB; got ${outputLimitBytes}`);
  }
  if (values.stateDir === undefined) {
    mistakes.push("--state-dir: not given; start the agent through src/start.sh, which finds one");
  }
  if (mistakes.length > 0) return { action: "error", mistakes };

  const workspace = values.workspace ?? "workspace";
  const root = values.root ?? workspace;
  const { tlsCert, tlsKey, givenWorkspace, givenRoot } = values;
  return {
    action: words.has("check-policy") ? "check-policy" : "serve",
    config: Object.freeze<AgentConfig>({
      listen,
      unixPath: values.unix,
      workspace,
      root,
      readPaths: values.readPath ?? [],
      aliases: [
        ...(givenWorkspace === undefined ? [] : [{ from: givenWorkspace, to: workspace }]),
        ...(givenRoot === undefined ? [] : [{ from: givenRoot, to: root }]),
      ],
      stateDir: values.stateDir!,
      isStateTemporary: values.stateTemporary ?? false,
      isStateShared: values.stateShared ?? false,
      enableProcess: values.enableProcess ?? true,
      enableFilesystem: values.enableFilesystem ?? true,
      allowRun: values.allowRun,
      runAs: values.runAs,
      auth,
      tokenFile: values.tokenFile,
      tls: tlsCert === undefined || tlsKey === undefined ? undefined : {
        certFile: tlsCert,
        keyFile: tlsKey,
        ...(values.tlsClientCa === undefined ? {} : { clientCaFile: values.tlsClientCa }),
      },
      maxProcesses: values.maxProcesses,
      descriptors: values.descriptors,
      processTimeoutMs: values.processTimeout ?? 0,
      killGraceMs: values.killGrace ?? 0,
      cgroup: values.cgroup,
      outputLimitBytes,
      spoolLimitBytes: values.spoolLimit ?? 2 ** 30,
      retain: values.retain ?? 1000,
      retainForMs: values.retainFor ?? 3_600_000,
      maxMessageBytes: values.maxMessage ?? 16 * 2 ** 20,
      fsync: values.fsync ?? false,
      shutdownGraceMs: values.shutdownGrace ?? 10_000,
      logLevel: values.logLevel ?? "info",
      stripEnv: values.stripEnv ?? [],
    }),
  };
}

/** The text of `--help`. */
export function helpText(): string {
  const rows = ROWS.filter(([, row]) => !row.isInternal).map(([, row]) => {
    const flags = row.flags.map((flag) => `--${flag}`).join(", ");
    const variables = row.variables.length > 0 ? ` [${row.variables.join(", ")}]` : "";
    return `  ${flags} ${row.placeholder}\n      ${row.help}${variables}`;
  });
  return `ateenvd: runs processes and serves files of a sandbox over gRPC (ateenv.v1alpha)

Usage: deno task start [flags], or ateenvd [flags] where it is installed

Flags [and variables; a flag wins]:
${rows.join("\n")}
  --check-policy
      print what the policy permits and how far a kill reaches, then exit
  -h, --help, --version

Sizes take bytes or KiB, MiB, GiB; durations ms, s, m, h.
`;
}
