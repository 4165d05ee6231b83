// A container without an engine: a root, started in its own namespaces as a platform does it. Takes root.
// Must not know what is tested in it.

const SCRIPT = new URL("container.sh", import.meta.url).pathname;

/** What to start. */
export interface ContainerOptions {
  readonly root: string;
  /** Mounted read-only at /ate. */
  readonly ate?: string;
  readonly user: string;
  readonly env: Readonly<Record<string, string>>;
  readonly command: readonly string[];
}

/** What a program in the container said. */
export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running container, whoever runs it; killed when disposed. */
export interface RunningContainer extends AsyncDisposable {
  /** From the first program of the runtime to the agent's line that it serves, in milliseconds. */
  readonly startMs: number;
  /** Runs a program in it, as `docker exec` does. */
  exec(...command: readonly string[]): Promise<Outcome>;
  /** A file below /proc/1. */
  readInit(name: string): Promise<string>;
  /** SIGTERM to PID 1. @returns the exit code, how long it took, and all it has logged */
  stop(): Promise<{ code: number; stopMs: number; log: string }>;
}

/** One in namespaces of the kernel. */
export class Container implements RunningContainer {
  readonly #unshare: Deno.ChildProcess;
  /** PID 1, as the host counts; not to be signalled once it has been waited for. */
  readonly #init: number;
  #ended = false;
  readonly #env: readonly string[];
  readonly #log: Promise<string>;
  readonly startMs: number;

  private constructor(
    unshare: Deno.ChildProcess,
    init: number,
    env: readonly string[],
    log: Promise<string>,
    startMs: number,
  ) {
    this.#unshare = unshare;
    this.#init = init;
    this.#env = env;
    this.#log = log;
    this.startMs = startMs;
  }

  /** Starts it, and waits for the agent's first line. @throws where that does not come */
  static async start(options: ContainerOptions): Promise<Container> {
    const beforeMs = performance.now();
    const env = Object.entries(options.env).map(([name, value]) => `${name}=${value}`);
    const unshare = new Deno.Command("unshare", {
      args: [
        ...["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--"],
        ...[
          "sh",
          SCRIPT,
          options.root,
          options.ate ?? "",
          options.user,
          ...env,
          ...options.command,
        ],
      ],
      cwd: "/",
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    const lines = readLines(unshare.stderr);
    const first = await lines.find((line) => line.includes('"msg":"ateenvd started"'));
    if (first === undefined) {
      throw new Error(`it does not start (${(await unshare.status).code}):\n${await lines.all}`);
    }
    const startMs = performance.now() - beforeMs;
    const children = await run(["cat", `/proc/${unshare.pid}/task/${unshare.pid}/children`]);
    return new Container(unshare, Number(children.stdout.trim()), env, lines.all, startMs);
  }

  exec(...command: readonly string[]): Promise<Outcome> {
    const enter = ["nsenter", "--target", `${this.#init}`, "--all", "--root", "--wd"];
    return run([
      ...enter,
      "/ate/bin/env",
      "-i",
      ...this.#env,
      "PATH=/bin:/usr/bin:/ate/bin",
      ...command,
    ]);
  }

  async readInit(name: string): Promise<string> {
    return (await run(["cat", `/proc/${this.#init}/${name}`])).stdout;
  }

  async stop(): Promise<{ code: number; stopMs: number; log: string }> {
    const beforeMs = performance.now();
    await run(["kill", "-TERM", `${this.#init}`]);
    const { code } = await this.#unshare.status;
    this.#ended = true;
    return { code, stopMs: performance.now() - beforeMs, log: await this.#log };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended) return;
    // The end of PID 1 is the end of all that is in its namespace.
    await run(["kill", "-KILL", `${this.#init}`]);
    await this.#unshare.status;
    await this.#log;
  }
}

/** Runs a program and waits for it. */
export async function run(command: readonly string[]): Promise<Outcome> {
  const { code, stdout, stderr } = await new Deno.Command(command[0]!, {
    args: command.slice(1),
    stdin: "null",
    clearEnv: true,
    env: { PATH: Deno.env.get("PATH") ?? "/usr/sbin:/usr/bin:/sbin:/bin" },
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/** Reads a stream to its end; meanwhile tells when a line comes that is looked for. */
export function readLines(stream: ReadableStream<Uint8Array<ArrayBuffer>>) {
  let text = "";
  const waiting: {
    test: (line: string) => boolean;
    resolve: (line: string | undefined) => void;
  }[] = [];
  const look = () => {
    const lines = text.split("\n").slice(0, -1);
    for (const entry of waiting) {
      const line = lines.find(entry.test);
      if (line !== undefined) entry.resolve(line);
    }
  };
  const all = (async () => {
    for await (const chunk of stream.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      look();
    }
    for (const { resolve } of waiting) resolve(undefined);
    return text;
  })();
  return {
    all,
    find(test: (line: string) => boolean): Promise<string | undefined> {
      const { promise, resolve } = Promise.withResolvers<string | undefined>();
      waiting.push({ test, resolve });
      look();
      all.then(() => resolve(undefined));
      return promise;
    },
  };
}
