// The real command with its production flags, as a process of its own, and the CLI against it.
// Must not know what is tested.
import { createTempDir } from "../helpers/state_dir.ts";
import { readLines } from "./container.ts";

const PROJECT = new URL("../../", import.meta.url).pathname;
const decoder = new TextDecoder();

/** A started agent; ended, with its directories, when disposed. */
export interface AgentProcess extends AsyncDisposable {
  readonly pid: number;
  readonly address: string;
  /** Fields of the line that says that it serves. */
  readonly started: Readonly<Record<string, unknown>>;
  /** The CLI. Standard input is empty unless given. */
  ateenv(args: readonly string[], stdin?: string): Promise<Outcome>;
  /** The CLI, running on. */
  follow(args: readonly string[]): Deno.ChildProcess;
}

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs start.sh to its end. */
export async function runStartScript(args: readonly string[], dir: string): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command("sh", {
    args: [
      `${PROJECT}src/start.sh`,
      "--workspace",
      `${dir}/ws`,
      "--state-dir",
      `${dir}/state`,
      ...args,
    ],
  }).output();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/** Starts an agent on a free port. @throws with its log where it does not serve */
export async function startAgentProcess(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<AgentProcess> {
  await using parts = new AsyncDisposableStack();
  const { path } = parts.use(await createTempDir());
  const child = new Deno.Command("sh", {
    args: [
      ...[`${PROJECT}src/start.sh`, "--listen", "127.0.0.1:0"],
      ...["--workspace", `${path}/ws`, "--state-dir", `${path}/state`, ...args],
    ],
    env,
    stdout: "null",
    stderr: "piped",
  }).spawn();
  const lines = readLines(child.stderr);
  parts.defer(async () => {
    child.kill("SIGTERM");
    await child.status;
    await lines.all;
  });
  const line = await lines.find((line) => line.includes('"ateenvd started"'));
  if (line === undefined) {
    parts.move();
    throw new Error(`it does not start: ${await lines.all}`);
  }
  const started = JSON.parse(line);
  const command = (words: readonly string[], stdin: "null" | "piped") =>
    new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--no-prompt", "--allow-net", "--allow-read", "--allow-write", "--allow-env"],
        ...[`${PROJECT}src/cli.ts`, "--address", started.address, ...words],
      ],
      cwd: PROJECT,
      stdin,
      stdout: "piped",
      stderr: "piped",
    }).spawn();
  const all = parts.move();
  return {
    pid: child.pid,
    address: started.address,
    started,
    follow: (words) => command(words, "null"),
    async ateenv(words, stdin) {
      const process = command(words, stdin === undefined ? "null" : "piped");
      if (stdin !== undefined) {
        const writer = process.stdin.getWriter();
        await writer.write(new TextEncoder().encode(stdin));
        await writer.close();
      }
      const { code, stdout, stderr } = await process.output();
      return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
