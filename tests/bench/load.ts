// The load generator: grpc-go where Go is installed, else grpc-js in a process of its own.
// Only starts it and reads its answers; must not import gRPC.

const HERE = new URL("./", import.meta.url).pathname;
const GO_SOURCE = `${HERE}loadgen`;

/** What an operation of the load generator reports; what it does not measure is 0 or absent. */
export interface Answer {
  readonly count: number;
  readonly seconds: number;
  readonly bytes: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly startMs?: number;
  readonly readySeconds?: number;
  readonly id?: string;
}

/** An operation that has reached its state and keeps it until released. */
export interface Held extends AsyncDisposable {
  readonly state: Answer;
}

/** Flags of an operation, without the dashes. */
export type Options = Readonly<Record<string, string | number | boolean>>;

/** Runs operations against a server. */
export class LoadGenerator {
  /** For people: what carries the load. */
  readonly name: string;
  readonly #command: readonly string[];

  constructor(name: string, command: readonly string[]) {
    this.name = name;
    this.#command = command;
  }

  /** The command of a child that writes `count` time stamps of eight bytes, `everyMs` apart. */
  emitter(count: number, everyMs: number): string[] {
    return [...this.#command, "emit", `-count=${count}`, `-every=${everyMs}`];
  }

  #start(operation: string, options: Options, child: readonly string[], stdin: "null" | "piped") {
    const [program, ...prefix] = this.#command;
    const flags = Object.entries(options).map(([name, value]) => `-${name}=${value}`);
    return new Deno.Command(program!, {
      args: [...prefix, operation, ...flags, ...child],
      stdin,
      stdout: "piped",
    }).spawn();
  }

  /** Runs one operation to its end. `child` is the command that it starts on the server, if it does. */
  async run(operation: string, options: Options, child: readonly string[] = []): Promise<Answer> {
    const process = this.#start(operation, options, child, "null");
    const [stdout, { success }] = await Promise.all([
      new Response(process.stdout).text(),
      process.status,
    ]);
    if (!success) {
      throw new Error(`The load generator failed: ${operation} ${JSON.stringify(options)}`);
    }
    return JSON.parse(stdout);
  }

  /** Runs an operation that holds its state (`hold`, `stall`) until it is disposed. */
  async hold(
    operation: string,
    options: Options,
    child: readonly string[] = [],
  ): Promise<Held> {
    const process = this.#start(operation, options, child, "piped");
    const reader = process.stdout.pipeThrough(new TextDecoderStream()).getReader();
    let line = "";
    while (!line.includes("\n")) {
      const { value, done } = await reader.read();
      if (done) throw new Error(`The load generator failed: ${operation}`);
      line += value;
    }
    return {
      state: JSON.parse(line),
      async [Symbol.asyncDispose]() {
        await process.stdin.close();
        while (!(await reader.read()).done);
        await process.status;
      },
    };
  }
}

/** Builds the Go client; undefined, with a word about it, where that cannot be done. */
async function buildGo(directory: string): Promise<LoadGenerator | undefined> {
  const binary = `${directory}/loadgen`;
  try {
    const { success, stderr } = await new Deno.Command("go", {
      args: ["build", "-mod=readonly", "-o", binary, "."],
      cwd: GO_SOURCE,
      // No other toolchain is fetched: an old Go means the fallback.
      env: { GOTOOLCHAIN: "local" },
    }).output();
    if (success) return new LoadGenerator("grpc-go", [binary]);
    console.error(`bench: no Go client: ${new TextDecoder().decode(stderr).trim()}`);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    console.error("bench: no Go client: `go` is not installed");
  }
  return undefined;
}

/**
 * The best load generator that this machine can have; `client` asks for one of them.
 * @throws {Error} where the one asked for cannot be had
 */
export async function createLoadGenerator(
  directory: string,
  client: "auto" | "go" | "js",
): Promise<LoadGenerator> {
  const go = client === "js" ? undefined : await buildGo(directory);
  if (go !== undefined) return go;
  if (client === "go") throw new Error("Cannot use the Go client: it cannot be built");
  console.error("bench: using grpc-js as client: it is a bottleneck, rates are lower bounds");
  return new LoadGenerator("grpc-js", [
    Deno.execPath(),
    "run",
    "--no-prompt",
    "--frozen",
    "--allow-env",
    "--allow-net=127.0.0.1",
    "--allow-write",
    `${HERE}load_worker.ts`,
  ]);
}

/** Runs an operation of floor_local.ts in a process of its own. */
export async function runLocal(...args: readonly string[]): Promise<Answer> {
  const { stdout, success } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", "-R", "-W", "--allow-run", `${HERE}floor_local.ts`, ...args],
    stderr: "inherit",
  }).output();
  if (!success) throw new Error(`The local floor failed: ${args.join(" ")}`);
  return JSON.parse(new TextDecoder().decode(stdout));
}
