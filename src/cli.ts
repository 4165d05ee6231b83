// The `ateenv` command: argv and the process's streams and signals -> cli/app.ts -> exit code.
// No logic of its own.
import { runApp } from "./cli/app.ts";
import { Asks } from "./cli/asks.ts";
import { OutputClosed, type Sink, type Stdio } from "./cli/stdio.ts";

const SIGNALS: readonly (readonly [Deno.Signal, number])[] = [
  ["SIGINT", 130],
  ["SIGTERM", 143],
  ["SIGHUP", 129],
];

function toSink(stream: typeof Deno.stdout): Sink {
  return {
    isTerminal: stream.isTerminal(),
    get columns() {
      if (!stream.isTerminal()) return undefined;
      try {
        return Deno.consoleSize().columns;
      } catch {
        // No terminal on any of the streams that Deno asks.
        return undefined;
      }
    },
    async write(bytes) {
      try {
        for (let rest = bytes; rest.length > 0;) rest = rest.subarray(await stream.write(rest));
      } catch (error) {
        if (error instanceof Deno.errors.BrokenPipe) throw new OutputClosed();
        throw error;
      }
    },
  };
}

function env(name: string): string | undefined {
  try {
    return Deno.env.get(name);
  } catch (error) {
    // Started without the permission: as if it were not set.
    if (error instanceof Deno.errors.NotCapable) return undefined;
    throw error;
  }
}

const asks = new Asks();
for (const [signal, exitCode] of SIGNALS) {
  Deno.addSignalListener(signal, () => {
    if (asks.add(exitCode, performance.now()) === "exit") Deno.exit(exitCode);
  });
}

const stdio: Stdio = {
  stdout: toSink(Deno.stdout),
  stderr: toSink(Deno.stderr),
  stdin: () => Deno.stdin.readable,
  env,
  interrupt: asks.interrupt,
  insist: asks.insist,
};

// Exits whatever is still open: a terminal on stdin, a connection that does not close.
Deno.exit(await runApp(Deno.args, stdio));
