// The CLI in its own process, through src/ateenv.sh as `deno task ateenv` does, in pipes or on a terminal.
// Must not import the CLI's own code: what it tests is the program.

const REPOSITORY = new URL("../../", import.meta.url).pathname;

/** Where and how to run it. */
export interface CliOptions {
  /** ATEENV_ADDRESS. */
  readonly address?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Bytes on stdin, which is closed after them. Default: nothing. */
  readonly stdin?: Uint8Array | string;
}

/** How it ended. */
export interface CliResult {
  readonly code: number;
  readonly stdout: string;
  readonly stdoutBytes: Uint8Array;
  readonly stderr: string;
}

/** The launcher; it becomes Deno, so that its process is the CLI's. */
export const CLI_LAUNCHER = `${REPOSITORY}src/ateenv.sh`;

function environment(options: CliOptions): Record<string, string> {
  return {
    ATEENVD_DENO: Deno.execPath(),
    ...(options.address === undefined ? {} : { ATEENV_ADDRESS: options.address }),
    ...options.env,
  };
}

/** Starts it with all streams as pipes. */
export function spawnCli(args: readonly string[], options: CliOptions = {}): Deno.ChildProcess {
  return new Deno.Command("sh", {
    args: [CLI_LAUNCHER, ...args],
    env: environment(options),
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  }).spawn();
}

/** Runs it to its end. */
export async function runCli(
  args: readonly string[],
  options: CliOptions = {},
): Promise<CliResult> {
  const child = spawnCli(args, options);
  const feed = async () => {
    const writer = child.stdin.getWriter();
    const { stdin = "" } = options;
    // It may end without reading what there is.
    await writer.write(typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin)
      .then(() => writer.close()).catch(() => {});
  };
  const [{ code, stdout, stderr }] = await Promise.all([child.output(), feed()]);
  return {
    code,
    stdout: new TextDecoder().decode(stdout),
    stdoutBytes: stdout,
    stderr: new TextDecoder().decode(stderr),
  };
}

/** The CLI on a terminal of its own. */
export interface TerminalSession {
  /** All that the terminal has shown so far. */
  readonly screen: string;
  /** Resolves once the screen shows `text`; rejects if the program ends before. */
  waitText(text: string | RegExp): Promise<void>;
  /** What a person types; `\x03` is Ctrl-C. */
  type(text: string): Promise<void>;
  readonly ended: Promise<number>;
}

/** Whether `script` (util-linux) is there, which gives a program a terminal. */
export async function hasTerminal(): Promise<boolean> {
  try {
    const { success } = await new Deno.Command("script", {
      args: ["-qec", "true", "/dev/null"],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).output();
    return success;
  } catch {
    return false;
  }
}

/** Runs `command` (shell text, in which `ateenv` is the CLI) on a new terminal of 100 columns. */
export function openTerminal(command: string, options: CliOptions = {}): TerminalSession {
  const script = `stty cols 100 rows 30; ateenv() { sh '${CLI_LAUNCHER}' "$@"; }; ${command}`;
  const child = new Deno.Command("script", {
    args: ["-qec", script, "/dev/null"],
    env: { TERM: "xterm", SHELL: "/bin/sh", ...environment(options) },
    stdin: "piped",
    stdout: "piped",
    stderr: "null",
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  }).spawn();
  const writer = child.stdin.getWriter();
  let screen = "";
  let isOver = false;
  const watchers = new Set<() => void>();
  const read = async () => {
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      screen += text;
      for (const watcher of watchers) watcher();
    }
    isOver = true;
    for (const watcher of watchers) watcher();
  };
  const reading = read();
  const ended = (async () => {
    const { code } = await child.status;
    await reading;
    await writer.close().catch(() => {});
    return code;
  })();
  return {
    get screen() {
      return screen;
    },
    async waitText(text) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const check = () => {
        if (typeof text === "string" ? screen.includes(text) : text.test(screen)) resolve();
        else if (isOver) reject(new Error(`the program ended without showing ${text}:\n${screen}`));
      };
      watchers.add(check);
      check();
      try {
        await promise;
      } finally {
        watchers.delete(check);
      }
    },
    async type(text) {
      await writer.write(new TextEncoder().encode(text));
    },
    ended,
  };
}
