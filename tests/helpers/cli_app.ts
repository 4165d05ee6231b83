// The CLI run in this process, with streams and variables that the test sees.
import { runApp } from "../../src/cli/app.ts";
import type { Sink, Stdio } from "../../src/cli/stdio.ts";

/** How it is run. */
export interface InProcessOptions {
  /** ATEENV_ADDRESS. */
  readonly address?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  /** Told of output as it comes. */
  readonly onStdout?: (text: string) => void;
  readonly onStderr?: (text: string) => void;
}

/** How it ended. */
export interface InProcessResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs one command line; its output is collected, not printed. */
export async function runInProcess(
  args: readonly string[],
  options: InProcessOptions = {},
): Promise<InProcessResult> {
  const text = { stdout: "", stderr: "" };
  const sink = (name: "stdout" | "stderr"): Sink => {
    const decoder = new TextDecoder();
    return {
      isTerminal: false,
      columns: undefined,
      write(bytes) {
        const more = decoder.decode(bytes, { stream: true });
        text[name] += more;
        (name === "stdout" ? options.onStdout : options.onStderr)?.(more);
        return Promise.resolve();
      },
    };
  };
  const env: Record<string, string> = { ...options.env };
  if (options.address !== undefined) env.ATEENV_ADDRESS = options.address;
  const io: Stdio = {
    stdout: sink("stdout"),
    stderr: sink("stderr"),
    stdin: () => new Blob([options.stdin ?? ""]).stream(),
    env: (name) => env[name],
    interrupt: new AbortController().signal,
    insist: new AbortController().signal,
  };
  const code = await runApp(args, io);
  return { code, ...text };
}
