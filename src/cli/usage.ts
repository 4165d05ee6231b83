// Mistakes in a command line: which help explains them, and what was probably meant.
// Pure.
import type { Command, CommanderError } from "commander";
import { CliError, OWN_FAILURE } from "./failure.ts";

/** What others call it, or would be a command if the agent had a call for it. */
const MEANT: Readonly<Record<string, string>> = {
  exec: "use `ateenv run`",
  sh: "use `ateenv run -- sh -c '...'`",
  bash: "use `ateenv run -- bash -c '...'`",
  ls: "use `ateenv run -- ls`",
  rm: "use `ateenv run -- rm`",
  mkdir: "use `ateenv run -- mkdir -p`; put and cp make parents by themselves",
  ps: "the agent lists no processes: keep the id that start prints, or `ateenv run -- ps`",
  list: "the agent lists no processes: keep the id that start prints, or `ateenv run -- ps`",
  tail: "use `ateenv logs -f`",
  attach: "use `ateenv logs -f`",
  stop: "use `ateenv kill`",
  upload: "use `ateenv cp ./local :remote`",
  push: "use `ateenv cp ./local :remote`",
  download: "use `ateenv cp :remote ./local`",
  pull: "use `ateenv cp :remote ./local`",
  get: "use `ateenv cp :remote ./local`, or `ateenv cat`",
  version: "use `ateenv --version`",
  ping: "use `ateenv health`",
};

/** The failure of a command line that `command` (the program itself, or a subcommand) does not understand. */
export function toUsageError(error: CommanderError, command: Command): CliError {
  if (error.code === "commander.help") {
    // `help WORD` is shown the help of the program, when there is no such command.
    const [word] = command.args.slice(1);
    return usageError(
      word === undefined ? "no command given" : `unknown command '${word}'`,
      command,
    );
  }
  const message = error.message.replace(/^error: /, "");
  const match = /^unknown (?:command|option) '(-*)([^']*)'/.exec(message);
  if (match === null) return usageError(message, command);
  const [said, dashes, word] = match as unknown as [string, string, string];
  const meant = dashes === "" ? MEANT[word] : undefined;
  if (meant !== undefined) return new CliError(said, { advice: meant, exitCode: OWN_FAILURE });
  const similar = suggestions(message).filter((text) => text.replace(/^-+/, "")[0] === word[0]);
  const suggestion = similar.length === 0 ? "" : ` (did you mean ${similar.join(" or ")}?)`;
  return usageError(said + suggestion, command);
}

/** A command of the sandbox gets no stdin, so that it can be no terminal's program. */
export function refuseTerminal(): never {
  throw new CliError("stdin and a terminal are not passed on", {
    advice: "put a file first: ateenv put - :in; ateenv run -- sh -c 'cmd <in'",
  });
}

function usageError(message: string, command: Command): CliError {
  const help = command.parent === null ? "ateenv --help" : `ateenv ${command.name()} --help`;
  return new CliError(message, { advice: `see \`${help}\``, exitCode: OWN_FAILURE });
}

/** Commander suggests whatever is three edits away; those are its words. */
function suggestions(message: string): readonly string[] {
  const list = /\(Did you mean (?:one of )?(.*)\?\)$/.exec(message)?.[1];
  return list === undefined ? [] : list.split(", ");
}
