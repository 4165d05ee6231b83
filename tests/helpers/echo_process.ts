// The echo server as a process of its own, for what a test must see from outside: crashes and memory.
/** A running server process; ends when disposed. */
export interface EchoProcess extends AsyncDisposable {
  /** What it printed: its port, or the path of its unix socket. */
  readonly address: string;
  /** Memory of the process, in bytes. */
  rssBytes(): Promise<number>;
  /** Whether it has not ended by itself. */
  alive(): boolean;
}

/** Options of {@linkcode startEchoProcess}. */
export interface EchoProcessOptions {
  /** A unix socket to listen on in place of TCP. */
  readonly path?: string;
  /** The process's limit of open descriptors. */
  readonly maxDescriptors?: number;
}

/** Starts tests/fixtures/programs/echo_server.ts and waits until it listens. */
export async function startEchoProcess(
  { path, maxDescriptors }: EchoProcessOptions = {},
): Promise<EchoProcess> {
  const child = new Deno.Command("/bin/sh", {
    args: [
      "-c",
      `${maxDescriptors === undefined ? "" : `ulimit -n ${maxDescriptors}; `}exec "$@"`,
      "sh",
      Deno.execPath(),
      "run",
      "--no-prompt",
      "--allow-all",
      "--quiet",
      // A smaller young generation: garbage of streams is collected before it adds up.
      "--v8-flags=--max-semi-space-size=4",
      new URL("../fixtures/programs/echo_server.ts", import.meta.url).pathname,
      ...(path === undefined ? [] : [path]),
    ],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  let alive = true;
  child.status.then(() => alive = false);
  const output = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let line = "";
  while (!line.endsWith("\n")) {
    const { value, done } = await output.read();
    if (done) {
      await child.stdin.close();
      await child.status;
      throw new Error("the echo server did not start");
    }
    line += value;
  }
  const address = line.trim();
  return {
    address,
    alive: () => alive,
    async rssBytes() {
      const response = await fetch(`http://127.0.0.1:${address}/metrics`);
      const text = await response.text();
      return Number(/^test_rss_bytes (\d+)$/m.exec(text)?.[1]);
    },
    async [Symbol.asyncDispose]() {
      await child.stdin.close();
      await child.status;
      await output.cancel();
    },
  };
}

/** Runs tests/fixtures/programs/load_client.ts to its end; whether it succeeded. */
export async function runLoad(
  port: string,
  mode: "calls" | "mixed",
  rounds: number,
): Promise<boolean> {
  const { success } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-prompt",
      "--allow-all",
      "--quiet",
      new URL("../fixtures/programs/load_client.ts", import.meta.url).pathname,
      port,
      mode,
      String(rounds),
    ],
    stdin: "null",
    stdout: "null",
    stderr: "inherit",
  }).output();
  return success;
}
