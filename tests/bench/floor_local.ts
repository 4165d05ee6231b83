// Floors without gRPC: what Deno itself needs to run a child and to take its output. One operation per run.
// Must not import the agent.

/** Reads of the size that carried most in measurements of pipes. */
const READ_BYTES = 256 * 1024;

interface Answer {
  readonly count: number;
  readonly seconds: number;
  readonly bytes: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

function answer(durationsMs: number[], startedAt: number, bytes = 0): Answer {
  const sorted = durationsMs.toSorted((a, b) => a - b);
  return {
    count: sorted.length,
    seconds: (performance.now() - startedAt) / 1000,
    bytes,
    p50Ms: sorted[Math.floor(sorted.length / 2)] ?? 0,
    p99Ms: sorted[Math.floor(sorted.length * 0.99)] ?? 0,
  };
}

/** Spawns `true` in its own session, waits for its status, creates two files. */
async function spawnTrue(count: number, directory: string): Promise<Answer> {
  const startedAt = performance.now();
  const durations: number[] = [];
  for (let i = 0; i < count; i++) {
    const at = performance.now();
    const child = new Deno.Command("true", {
      detached: true,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    await Promise.all([child.status, child.stdout.cancel(), child.stderr.cancel()]);
    for (const name of ["started", "finished"]) {
      (await Deno.open(`${directory}/${name}.${i}`, { createNew: true, write: true })).close();
    }
    durations.push(performance.now() - at);
  }
  return answer(durations, startedAt);
}

/** Creates a file of 4 KiB and renames it over another, as an atomic upload does. */
async function replaceFile(count: number, directory: string): Promise<Answer> {
  const startedAt = performance.now();
  const durations: number[] = [];
  const content = new Uint8Array(4096);
  for (let i = 0; i < count; i++) {
    const at = performance.now();
    using file = await Deno.open(`${directory}/temporary`, { createNew: true, write: true });
    await file.write(content);
    await Deno.rename(`${directory}/temporary`, `${directory}/target`);
    durations.push(performance.now() - at);
  }
  return answer(durations, startedAt);
}

/** Reads all that a child writes, in reused buffers. */
async function readPipe(
  [program, ...args]: readonly string[],
  take: (bytes: Uint8Array) => void | Promise<void>,
): Promise<void> {
  const child = new Deno.Command(program!, { args, stdin: "null", stdout: "piped" }).spawn();
  const reader = child.stdout.getReader({ mode: "byob" });
  let buffer = new Uint8Array(READ_BYTES);
  while (true) {
    const { value, done } = await reader.read(buffer);
    if (value === undefined || done) break;
    await take(value);
    buffer = new Uint8Array(value.buffer);
  }
  await child.status;
}

async function pipeToFile(path: string, command: readonly string[]): Promise<Answer> {
  const startedAt = performance.now();
  let bytes = 0;
  using file = await Deno.open(path, { create: true, truncate: true, write: true });
  await readPipe(command, async (piece) => {
    bytes += piece.length;
    for (let at = 0; at < piece.length;) at += await file.write(piece.subarray(at));
  });
  return answer([], startedAt, bytes);
}

/** A child that writes the time in nanoseconds, eight bytes at a time: how old they are when they arrive. */
async function latency(command: readonly string[]): Promise<Answer> {
  const startedAt = performance.now();
  const durations: number[] = [];
  await readPipe(command, (piece) => {
    const nowMs = performance.timeOrigin + performance.now();
    const view = new DataView(piece.buffer, piece.byteOffset, piece.length);
    for (let at = 0; at + 8 <= piece.length; at += 8) {
      durations.push(nowMs - Number(view.getBigUint64(at, true)) / 1e6);
    }
  });
  return answer(durations, startedAt);
}

async function run([operation, ...args]: readonly string[]): Promise<Answer> {
  switch (operation) {
    case "spawn":
      return await spawnTrue(Number(args[0]), args[1]!);
    case "replace":
      return await replaceFile(Number(args[0]), args[1]!);
    case "pipe-to-file":
      return await pipeToFile(args[0]!, args.slice(1));
    case "latency":
      return await latency(args);
    default:
      throw new Error(`Unknown operation ${operation}`);
  }
}

console.log(JSON.stringify(await run(Deno.args)));
