// The command line: what can be typed, and which function it means. argv -> exit code.
// Must not touch the process it runs in: everything goes through Stdio.
import { Command, type CommanderError, Option } from "commander";
import { VERSION } from "../version.ts";
import { copy } from "./copy.ts";
import { doctor } from "./doctor.ts";
import { COPY_HELP, EXAMPLES, RUN_HELP, START_HELP, STATUS_HELP } from "./help.ts";
import { OUTPUT_CLOSED, toCliError, toJson, toLine } from "./failure.ts";
import { cat, put } from "./file_commands.ts";
import { health } from "./health.ts";
import { collectVariable, parseDuration, parseMode, parseOffsets } from "./options.ts";
import { kill, logs, start, status, wait } from "./process_commands.ts";
import { run } from "./run.ts";
import { Session, type TargetOptions } from "./session.ts";
import { Interrupt, OutputClosed, type Stdio, writeText } from "./stdio.ts";
import { refuseTerminal, toUsageError } from "./usage.ts";

/** Runs one command line; never throws, never exits. */
export async function runApp(args: readonly string[], io: Stdio): Promise<number> {
  const app = new App(io);
  try {
    return await app.run(args);
  } catch (error) {
    return await tell(error, wantsJson(args), io);
  }
}

/** Looks at the words, not at what was parsed: a mistake in them is told in JSON too. */
function wantsJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return args.slice(0, end === -1 ? args.length : end).includes("--json");
}

async function tell(error: unknown, json: boolean, io: Stdio): Promise<number> {
  const reason: unknown = io.interrupt.reason;
  if (io.interrupt.aborted) return reason instanceof Interrupt ? reason.exitCode : 130;
  if (error instanceof OutputClosed) return OUTPUT_CLOSED;
  const failure = toCliError(error);
  try {
    await writeText(io.stderr, json ? toJson(failure) : toLine(failure));
  } catch {
    // Nobody reads it; the exit code still tells.
  }
  return failure.exitCode;
}

/** Thrown where the answer is text that commander has made. */
const HELP_WANTED = new Error("help is wanted");

class App {
  readonly #io: Stdio;
  #exitCode = 0;
  #help = "";

  constructor(io: Stdio) {
    this.#io = io;
  }

  async run(args: readonly string[]): Promise<number> {
    const program = this.#program();
    try {
      await program.parseAsync([...args], { from: "user" });
    } catch (error) {
      if (error !== HELP_WANTED) throw error;
      await writeText(this.#io.stdout, this.#help);
      return 0;
    }
    return this.#exitCode;
  }

  #program(): Command {
    const program = this.#configure(new Command("ateenv"))
      .description("Run commands and move files in a sandbox, through its agent (ateenvd).")
      .version(VERSION, "--version", "print the version")
      .helpCommand("help [command]", "explain a command")
      .usage("[options] <command>")
      .addHelpText("after", EXAMPLES);
    this.#addTargetOptions(program);

    this.#command(
      program,
      "run",
      "run a command, with its output and exit code as if it were local",
    )
      .argument("<command...>", "program and arguments; no shell is involved")
      .option("-w, --cwd <dir>", "working directory, relative to the workspace")
      .option("-e, --env <NAME=value>", "set a variable; may be given again", collectVariable)
      .option("--timeout <duration>", "kill it after this long, and exit 124", parseDuration)
      .addOption(new Option("-i, --interactive").hideHelp())
      .addOption(new Option("-t, --tty").hideHelp())
      .passThroughOptions()
      .addHelpText("after", RUN_HELP)
      .action(
        this.#action((session, argv: string[], options) =>
          options.interactive || options.tty ? refuseTerminal() : run(session, argv, options)
        ),
      );

    this.#command(program, "start", "start a command in the background and print its id")
      .argument("<command...>", "program and arguments; no shell is involved")
      .option("-w, --cwd <dir>", "working directory, relative to the workspace")
      .option("-e, --env <NAME=value>", "set a variable; may be given again", collectVariable)
      .passThroughOptions()
      .addHelpText("after", START_HELP)
      .action(this.#action((session, argv: string[], options) => start(session, argv, options)));

    this.#command(program, "status", "print the state of a process")
      .argument("<id>")
      .addHelpText("after", STATUS_HELP)
      .action(this.#action((session, id: string) => status(session, id)));

    this.#command(program, "logs", "print the output of a process, stdout and stderr apart")
      .argument("<id>")
      .option("-f, --follow", "go on until the process has finished")
      .option(
        "--since-offset <bytes>",
        "leave out this many bytes of each stream, or of stdout,stderr",
        parseOffsets,
      )
      .addOption(
        new Option("--only <stream>", "one stream only").choices(["stdout", "stderr"]),
      )
      .addHelpText("after", "\nExample:\n  ateenv logs -f --since-offset 4096 $id > build.log")
      .action(this.#action((session, id: string, options) => logs(session, id, options)));

    this.#command(program, "wait", "wait for a process to finish, and exit with its code")
      .argument("<id>")
      .addHelpText("after", "\nExample:\n  ateenv wait $id || ateenv logs --only stderr $id")
      .action(this.#action((session, id: string) => wait(session, id)));

    this.#command(program, "kill", "kill a process and all of its descendants")
      .argument("<id>")
      .addHelpText("after", "\nExample:\n  ateenv kill $id")
      .action(this.#action((session, id: string) => kill(session, id)));

    this.#command(program, "cp", "copy a file or directory; a leading colon means the sandbox")
      .argument("<from>")
      .argument("<to>")
      .addOption(
        new Option("--skip-links", "leave out links that lead out of a downloaded directory")
          .conflicts("keepLinks"),
      )
      .option("--keep-links", "make them here as they are; they are not followed")
      .addHelpText("after", COPY_HELP)
      .action(
        this.#action((session, from: string, to: string, options) =>
          copy(session, from, to, options)
        ),
      );

    this.#command(program, "cat", "print files of the sandbox")
      .argument("<path...>")
      .addHelpText("after", "\nExample:\n  ateenv cat build/report.xml | xmllint --format -")
      .action(this.#action((session, paths: string[]) => cat(session, paths)));

    this.#command(program, "put", "write a local file, or stdin for -, to a file of the sandbox")
      .argument("<local>", "a file, or - for stdin")
      .argument("<remote>", "a path in the sandbox")
      .option("--mode <octal>", "permission bits", parseMode)
      .addHelpText("after", "\nExample:\n  git diff | ateenv put - :change.patch")
      .action(
        this.#action((session, local: string, remote: string, options) =>
          put(session, local, remote, options)
        ),
      );

    this.#command(program, "health", "ask whether the agent is ready: exit code 0 or 1, no token")
      .addHelpText("after", "\nExample:\n  until ateenv health; do sleep 0.1; done")
      .action(this.#action((session) => health(session)));

    this.#command(program, "doctor", "try everything that has to work, one line each")
      .addHelpText("after", "\nExample:\n  ateenv doctor --address sandbox.example:8080")
      .action(this.#action((session) => doctor(session)));
    return program;
  }

  #command(program: Command, name: string, description: string): Command {
    const command = this.#configure(program.command(name)).description(description);
    this.#addTargetOptions(command);
    return command;
  }

  #configure(command: Command): Command {
    return command
      .exitOverride((error: CommanderError) => {
        throw error.exitCode === 0 ? HELP_WANTED : toUsageError(error, command);
      })
      .enablePositionalOptions()
      .showSuggestionAfterError()
      .configureOutput({
        writeOut: (text) => void (this.#help += text),
        // Usage errors are told like all others, once, by `tell`.
        writeErr: () => {},
        getOutHelpWidth: () => this.#io.stdout.columns ?? 80,
        getOutHasColors: () => false,
        getErrHasColors: () => false,
      });
  }

  #addTargetOptions(command: Command): void {
    command.optionsGroup("The agent:")
      .option("--address <address>", `host:port, https://host:port or unix:/path (ATEENV_ADDRESS)`)
      .option("--token-file <path>", "file with the agent's token (ATEENV_TOKEN_FILE)")
      .option("--tls-ca <path>", "PEM file: use TLS, trust this authority (ATEENV_TLS_CA)")
      .option("--tls-cert <path>", "PEM file: client certificate")
      .option("--tls-key <path>", "PEM file: its key")
      .optionsGroup("Options:")
      .option("--json", "answer, and fail, in JSON");
  }

  /** A commander action that gets a session and whose result is the exit code. */
  // deno-lint-ignore no-explicit-any
  #action(action: (session: Session, ...args: any[]) => Promise<number>) {
    return async (...args: unknown[]) => {
      const command = args.pop() as Command;
      const options = command.optsWithGlobals<TargetOptions>();
      const session = new Session(this.#io, options);
      this.#exitCode = await untilInsisted(session, action(session, ...args));
    };
  }
}

/** The result of a command, which is left behind where somebody insists. */
async function untilInsisted(session: Session, result: Promise<number>): Promise<number> {
  const { insist } = session.io;
  const insisted = Promise.withResolvers<never>();
  const onInsist = () => insisted.reject(insist.reason);
  insist.addEventListener("abort", onInsist, { once: true });
  try {
    return await Promise.race([result, insisted.promise]);
  } catch (error) {
    if (insist.aborted && session.lastWords !== undefined) await session.note(session.lastWords);
    throw error;
  } finally {
    insist.removeEventListener("abort", onInsist);
  }
}
