// The real agent in its own process, started as `deno task start` does: through `sh src/start.sh`.
// Must not import the agent's own code: what it tests is the program.
const REPOSITORY = new URL("../../", import.meta.url).pathname;

/** How to start the agent. */
export interface AgentProcessOptions {
  /** Flags beside --listen, --workspace and --state-dir, which are given unless they stand here. */
  readonly flags?: readonly string[];
  /** Variables beside those of the test's own environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Directory to serve, kept at the end; default: a temporary one. */
  readonly workspace?: string;
  /** State directory, kept at the end; default: a temporary one. */
  readonly stateDir?: string;
  /** Shell text that is run before the agent takes the shell's place: `umask 077`. */
  readonly before?: string;
  /** What starts the agent, from the repository's directory; default: `sh src/start.sh`. */
  readonly program?: readonly string[];
  /** Gives no flags but `flags`: where it listens and what it serves is left to its defaults. */
  readonly isBare?: boolean;
  /** Directory to start it from, in place of the repository's. */
  readonly cwd?: string;
}

/** One line of the agent's log. */
export type LogLine = Readonly<Record<string, unknown>>;

/** A running agent. Disposing stops it as `stop` does, and removes its temporary directories. */
export interface AgentProcess extends AsyncDisposable {
  /** `host:port` it listens on. */
  readonly address: string;
  /** Of what was started: of the agent itself, unless `program` keeps it as a child. */
  readonly pid: number;
  readonly workspace: string;
  /** Empty where it was left to the agent. */
  /** Empty where it was left to the agent. */
  readonly stateDir: string;
  /** The first line of its log that names an address. */
  readonly startLine: LogLine;
  /** What it has logged up to now; `{text}` for a line that is no JSON. */
  readonly logLines: readonly LogLine[];
  /** Resolves once the process has ended. */
  readonly ended: Promise<Deno.CommandStatus>;
  signal(name: Deno.Signal): void;
  /**
   * SIGTERM, then waits for the end.
   * @throws {Error} if the agent ends with another code than 0
   */
  stop(): Promise<void>;
  /** SIGKILL, then waits for the end. */
  crash(): Promise<void>;
}

/** The agent ended before it was ready. */
export class AgentStartError extends Error {
  override readonly name = "AgentStartError";
  /** What it wrote to stderr. */
  readonly stderr: string;
  readonly code: number;

  constructor(code: number, stderr: string) {
    super(`the agent ended with code ${code} before it was ready:\n${stderr}`);
    this.code = code;
    this.stderr = stderr;
  }
}

function parseLine(text: string): LogLine {
  try {
    return JSON.parse(text);
  } catch {
    return { text };
  }
}

function readLog(path: string): LogLine[] {
  return Deno.readTextFileSync(path).split("\n").filter((text) => text !== "").map(parseLine);
}

/** Waits for the line that says where the agent listens. */
async function waitStartLine(path: string, changes: Deno.FsWatcher): Promise<LogLine | undefined> {
  for await (const _ of changes) {
    const line = readLog(path).find(({ address }) => typeof address === "string");
    if (line !== undefined) return line;
  }
  return undefined;
}

async function removeTree(path: string): Promise<void> {
  // A test that ran as root may have left a mount or files of others; those are its own to undo.
  await Deno.remove(path, { recursive: true }).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
}

/**
 * Starts the agent on a free port of 127.0.0.1 and waits until it listens.
 * @throws {AgentStartError} if it ends instead
 */
export async function startAgentProcess(options: AgentProcessOptions = {}): Promise<AgentProcess> {
  const temporary: string[] = [];
  const directory = async (given: string | undefined, prefix: string) => {
    if (given !== undefined) return given;
    const path = await Deno.realPath(await Deno.makeTempDir({ prefix }));
    temporary.push(path);
    return path;
  };
  const given = options.flags ?? [];
  const flags = [...given];
  let workspace = options.workspace ?? "";
  let stateDir = options.stateDir ?? "";
  if (!options.isBare) {
    workspace = await directory(options.workspace, "ateenvd-workspace-");
    stateDir = await directory(options.stateDir, "ateenvd-state-");
    const unlessGiven = (flag: string, value: string) => {
      const isGiven = given.some((text) => text === flag || text.startsWith(`${flag}=`));
      if (!isGiven) flags.push(flag, value);
    };
    unlessGiven("--listen", "127.0.0.1:0");
    unlessGiven("--workspace", workspace);
    unlessGiven("--state-dir", stateDir);
  }
  // A file, not a pipe: a shared agent outlives the test that reads, and the sanitizers count pending reads.
  const logDir = await directory(undefined, "ateenvd-log-");
  const logPath = `${logDir}/log`;
  using changes = Deno.watchFs(logDir);
  const child = new Deno.Command("sh", {
    args: [
      "-c",
      `exec 2>'${logPath}'; ${options.before ?? ":"}; exec "$@"`,
      "sh",
      ...(options.program ?? ["sh", "src/start.sh"]),
      ...flags,
    ],
    cwd: options.cwd ?? REPOSITORY,
    env: { ...options.env },
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).spawn();
  const ended = child.status;
  const startLine = await Promise.race([
    waitStartLine(logPath, changes),
    ended.then(() => undefined),
  ]);
  if (startLine === undefined) {
    const { code } = await ended;
    const text = await Deno.readTextFile(logPath);
    for (const path of temporary) await removeTree(path);
    throw new AgentStartError(code, text);
  }

  let stopping: Promise<void> | undefined;
  const signal = (name: Deno.Signal) => {
    try {
      child.kill(name);
    } catch (error) {
      // It has ended already.
      if (!(error instanceof TypeError) && !(error instanceof Deno.errors.NotFound)) throw error;
    }
  };
  const stop = () =>
    stopping ??= (async () => {
      signal("SIGTERM");
      const status = await ended;
      if (status.code !== 0) {
        const text = readLog(logPath).slice(-20).map((line) => JSON.stringify(line)).join("\n");
        throw new Error(`the agent ended with code ${status.code} after SIGTERM:\n${text}`);
      }
    })();
  const crash = () =>
    stopping ??= (async () => {
      signal("SIGKILL");
      await ended;
    })();
  return {
    address: String(startLine.address).replace(/^[a-z+]+:\/\//, ""),
    pid: child.pid,
    workspace: workspace === "" ? String(startLine.workspace) : workspace,
    stateDir,
    startLine,
    get logLines() {
      return readLog(logPath);
    },
    ended,
    signal,
    stop,
    crash,
    async [Symbol.asyncDispose]() {
      try {
        await stop();
      } finally {
        for (const path of temporary) await removeTree(path);
      }
    },
  };
}
