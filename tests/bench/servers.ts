// Servers under measurement in processes of their own: the agent as users start it, and the floor.
// Looks at them from outside only; must not import the agent.

const ROOT = new URL("../../", import.meta.url).pathname;

/** A server process. */
export interface Server extends AsyncDisposable {
  readonly pid: number;
  /** `127.0.0.1:PORT` */
  readonly address: string;
  /** Directory that its relative paths resolve against. */
  readonly workspace: string;
  /** From the spawn to the first answer, in milliseconds. */
  readonly startMs: number;
}

/** What the kernel knows of a process; /proc can be opened by a child only (permissions). */
export async function readProc(pid: number, file: "stat" | "status" | "io"): Promise<string> {
  const { stdout, success } = await new Deno.Command("cat", {
    args: [`/proc/${pid}/${file}`],
    stderr: "null",
  }).output();
  if (!success) throw new Error(`Cannot read /proc/${pid}/${file}: the process is gone`);
  return new TextDecoder().decode(stdout);
}

/** CPU time that a process has used, all its threads and none of its children, in milliseconds. */
export async function cpuMs(pid: number): Promise<number> {
  const stat = await readProc(pid, "stat");
  // utime and stime are fields 14 and 15; the name before them may contain blanks. 100 ticks a second.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** Resident memory of a process now and at its highest, in MiB. */
export async function memoryMiB(pid: number): Promise<{ now: number; peak: number }> {
  const status = await readProc(pid, "status");
  const field = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1]) / 1024;
  return { now: field("VmRSS"), peak: field("VmHWM") };
}

/** Bytes that a process has read from anywhere, files included. */
export async function bytesRead(pid: number): Promise<number> {
  return Number(/^rchar: (\d+)/m.exec(await readProc(pid, "io"))?.[1]);
}

/** A port that was free a moment ago. */
function findPort(): number {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  return listener.addr.port;
}

/** Asks again and again, as a pool of sandboxes does, until `isReady`; fails when the process is gone. */
async function waitReady(
  child: Deno.ChildProcess,
  isReady: () => Promise<boolean>,
  name: string,
): Promise<void> {
  let gone = false;
  child.status.then(() => gone = true);
  while (!await isReady()) {
    if (gone) throw new Error(`${name} ended before it was ready`);
    // One millisecond: the figure's own resolution.
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function connects(port: number): Promise<boolean> {
  try {
    (await Deno.connect({ hostname: "127.0.0.1", port })).close();
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.ConnectionRefused) return false;
    throw error;
  }
}

async function answersReadyz(port: number): Promise<boolean> {
  try {
    using conn = await Deno.connect({ hostname: "127.0.0.1", port });
    await conn.write(new TextEncoder().encode("GET /readyz HTTP/1.1\r\nHost: bench\r\n\r\n"));
    const buffer = new Uint8Array(64);
    const count = await conn.read(buffer);
    return new TextDecoder().decode(buffer.subarray(0, count ?? 0)).startsWith("HTTP/1.1 200");
  } catch (error) {
    if (error instanceof Deno.errors.ConnectionRefused) return false;
    if (error instanceof Deno.errors.ConnectionReset) return false;
    throw error;
  }
}

/** The environment that all servers get: what Deno needs, and nothing that would set the agent. */
function environment(): Record<string, string> {
  const names = ["PATH", "HOME", "DENO_DIR", "XDG_CACHE_HOME", "TMPDIR"];
  return Object.fromEntries(names.flatMap((name) => {
    const value = Deno.env.get(name);
    return value === undefined ? [] : [[name, value]];
  }));
}

async function startServer(
  name: string,
  command: readonly string[],
  port: number,
  directory: string,
  isReady: () => Promise<boolean>,
): Promise<Server> {
  const logPath = `${directory}/log`;
  const startedAt = performance.now();
  const child = new Deno.Command("sh", {
    // `exec`, so that the pid is the server's own.
    args: ["-c", `exec "$@" 2>"$0"`, logPath, ...command],
    cwd: ROOT,
    env: environment(),
    clearEnv: true,
    stdin: "null",
    stdout: "null",
  }).spawn();
  try {
    await waitReady(child, isReady, name);
  } catch (error) {
    console.error(await Deno.readTextFile(logPath));
    throw error;
  }
  return {
    pid: child.pid,
    address: `127.0.0.1:${port}`,
    workspace: `${directory}/workspace`,
    startMs: performance.now() - startedAt,
    async [Symbol.asyncDispose]() {
      try {
        child.kill("SIGTERM");
      } catch {
        console.error(`${name} was gone: ${await Deno.readTextFile(logPath)}`);
      }
      await child.status;
      await Deno.remove(directory, { recursive: true });
    },
  };
}

/** Starts the agent with the command and the permissions that users start it with. */
export async function startAgent(...flags: readonly string[]): Promise<Server> {
  const directory = await Deno.makeTempDir({ prefix: "ateenvd-bench-" });
  const port = findPort();
  const command = ["sh", "src/start.sh", "--listen", `127.0.0.1:${port}`];
  command.push("--workspace", `${directory}/workspace`, "--state-dir", `${directory}/state`);
  return await startServer(
    "the agent",
    [...command, ...flags],
    port,
    directory,
    () => answersReadyz(port),
  );
}

/** Starts the bare grpc-js server. */
export async function startFloor(): Promise<Server> {
  const directory = await Deno.makeTempDir({ prefix: "ateenvd-bench-floor-" });
  const port = findPort();
  const command = [Deno.execPath(), "run", "--no-prompt", "--frozen", "--allow-env"];
  command.push(`--allow-net=127.0.0.1:${port}`, "tests/bench/floor_server.ts", String(port));
  return await startServer("the floor", command, port, directory, () => connects(port));
}
