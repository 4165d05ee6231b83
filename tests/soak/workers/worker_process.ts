// A client in a process of its own, so that it can be stopped, killed and cut off without the rest.
// Must not import the product.
/** Splits text at line ends. */
function lines(): TransformStream<string, string> {
  let rest = "";
  return new TransformStream({
    transform(text, controller) {
      const parts = (rest + text).split("\n");
      rest = parts.pop()!;
      for (const part of parts) controller.enqueue(part);
    },
  });
}

const HERE = new URL("./", import.meta.url).pathname;

/** A running worker: commands go in as lines of JSON, answers come out as lines of JSON. */
export class WorkerProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;
  readonly #output: ReadableStreamDefaultReader<string>;
  #ended = false;

  /**
   * Starts `workers/NAME`. `wrapper` is a program with its arguments that runs it, such as
   * `ip netns exec NAME`.
   */
  constructor(name: string, args: readonly string[], wrapper: readonly string[] = []) {
    const command = [
      ...wrapper,
      Deno.execPath(),
      "run",
      "--no-prompt",
      "--allow-env",
      "--allow-sys",
      "--allow-net",
      HERE + name,
      ...args,
    ];
    this.#child = new Deno.Command(command[0]!, {
      args: command.slice(1),
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#input = this.#child.stdin.getWriter();
    // A worker that was killed takes no more.
    this.#input.closed.catch(() => {});
    this.#output = this.#child.stdout.pipeThrough(new TextDecoderStream()).pipeThrough(
      lines(),
    ).getReader();
  }

  /** Sends one command and reads one answer. @throws {Error} if the worker has ended */
  async ask<T>(command: unknown): Promise<T> {
    await this.#input.write(new TextEncoder().encode(JSON.stringify(command) + "\n"));
    return await this.next<T>();
  }

  /** Reads one line. @throws {Error} if the worker has ended */
  async next<T>(): Promise<T> {
    const { value } = await this.#output.read();
    if (value === undefined) throw new Error("the worker has ended");
    return JSON.parse(value);
  }

  /** Signals the worker. */
  signal(name: Deno.Signal): void {
    if (!this.#ended) this.#child.kill(name);
  }

  /**
   * Ends its input and reads its last line; undefined where it does not end in time and had to be killed.
   * A client on Deno may spin for ever once its connection was closed while it stood still.
   */
  async finish<T>(patienceMs: number): Promise<T | undefined> {
    await this.#input.close();
    const late = Promise.withResolvers<undefined>();
    const timer = setTimeout(() => late.resolve(undefined), patienceMs);
    const last = await Promise.race([this.next<T>().catch(() => undefined), late.promise]);
    clearTimeout(timer);
    if (last === undefined) this.signal("SIGKILL");
    await this.#end();
    return last;
  }

  /** Kills it where it stands. */
  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.#end();
  }

  async #end(): Promise<void> {
    await this.#child.status;
    this.#ended = true;
    await this.#input.abort().catch(() => {});
    await this.#output.cancel().catch(() => {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#ended) await this.kill();
  }
}
