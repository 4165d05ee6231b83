// The load generator where Go is not installed: the same operations and answers as loadgen/, over grpc-js.
// Must not import the agent; encodes with protobuf-es, as any JavaScript client does.
import { create, type DescMethod, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { Client, type ClientReadableStream, credentials, type ServiceError } from "@grpc/grpc-js";
import { parseArgs } from "node:util";
import {
  FileSystemService,
  type OutputChunk,
  ProcessService,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";

const INT64_MAX = 2n ** 63n - 1n;

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    addr: { type: "string", default: "" },
    id: { type: "string", default: "" },
    path: { type: "string", default: "" },
    inflight: { type: "string", default: "1" },
    count: { type: "string", default: "0" },
    ms: { type: "string", default: "1000" },
    conns: { type: "string", default: "1" },
    bytes: { type: "string", default: "0" },
    chunk: { type: "string", default: "65536" },
    processes: { type: "string", default: "1" },
    followers: { type: "string", default: "1" },
    every: { type: "string", default: "5" },
    follow: { type: "string", default: "false" },
  },
  args: normalize(Deno.args),
});

/** Flags as Go writes them (`-name=value`), then the command of a child, which may hold anything. */
function normalize([operation, ...args]: readonly string[]): string[] {
  const end = args.findIndex((arg) => !/^-\w+=/.test(arg));
  const own = (end < 0 ? args : args.slice(0, end)).map((arg) => `-${arg}`);
  return [operation ?? "", ...own, "--", ...(end < 0 ? [] : args.slice(end))];
}

const [operation, ...child] = positionals;
const [count, inflight, bytes] = [flags.count, flags.inflight, flags.bytes].map(Number) as [
  number,
  number,
  number,
];

const { startProcess, getProcess, streamProcessOutputs } = ProcessService.method;
const { readFile, writeFile } = FileSystemService.method;

const clients: Client[] = [];

function connect(): Client {
  return new Client(flags.addr, credentials.createInsecure(), {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.max_receive_message_length": -1,
    "grpc-node.flow_control_window": 8 * 1024 * 1024,
  });
}

/** Connections are made when they are first used: `emit` has no server. */
const clientOf = (number: number) => clients[number % Number(flags.conns)] ??= connect();
const pathOf = (method: DescMethod) => `/${method.parent.typeName}/${method.name}`;
const encoder = (method: DescMethod) => (message: Message) =>
  Buffer.from(toBinary(method.input, message));
const decoder = (method: DescMethod) => (bytes: Buffer) => fromBinary(method.output, bytes);

function unary(number: number, method: DescMethod, request: Message): Promise<Message> {
  return new Promise((resolve, reject) => {
    clientOf(number).makeUnaryRequest(
      pathOf(method),
      encoder(method),
      decoder(method),
      request,
      (error: ServiceError | null, value?: Message) => error ? reject(error) : resolve(value!),
    );
  });
}

function open(
  number: number,
  method: DescMethod,
  request: Message,
): ClientReadableStream<Message & { data: Uint8Array }> {
  return clientOf(number).makeServerStreamRequest(
    pathOf(method),
    encoder(method),
    decoder(method) as (bytes: Buffer) => OutputChunk,
    request,
  );
}

async function start(number: number): Promise<string> {
  const answer = await unary(number, startProcess, create(startProcess.input, { command: child }));
  return (answer as Message & { processId: string }).processId;
}

function follow(number: number, processId: string, offset = 0n) {
  const request = create(streamProcessOutputs.input, {
    processId,
    stdoutOffset: offset,
    stderrOffset: offset,
    follow: true,
  });
  return open(number, streamProcessOutputs, request);
}

/** Receives to the end: the number of content bytes. */
async function drain(
  stream: ClientReadableStream<Message & { data: Uint8Array }>,
  take?: (data: Uint8Array) => void,
): Promise<number> {
  let total = 0;
  for await (const { data } of stream) {
    total += data.length;
    take?.(data);
  }
  return total;
}

async function upload(number: number): Promise<number> {
  const path = flags.path.replace("%d", String(number));
  const payload = new Uint8Array(Number(flags.chunk));
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const call = clientOf(number).makeClientStreamRequest(
    pathOf(writeFile),
    encoder(writeFile),
    decoder(writeFile),
    (error: ServiceError | null) => error ? reject(error) : resolve(),
  );
  let left = bytes;
  do {
    const chunk = payload.subarray(0, Math.min(left, payload.length));
    left -= chunk.length;
    const message = create(writeFile.input, { path, chunk });
    if (!call.write(message)) await new Promise((drained) => call.once("drain", drained));
  } while (left > 0);
  call.end();
  await promise;
  return bytes;
}

interface Answer {
  [quantity: string]: number | string;
}

const milliseconds = (sorted: readonly number[], quantile: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(quantile * sorted.length))] ?? 0;

function answer(durations: number[], startedAt: number, more: Answer = {}): Answer {
  const sorted = durations.toSorted((a, b) => a - b);
  return {
    count: sorted.length,
    seconds: (performance.now() - startedAt) / 1000,
    bytes: 0,
    p50Ms: milliseconds(sorted, 0.5),
    p99Ms: milliseconds(sorted, 0.99),
    ...more,
  };
}

async function repeat(once: (number: number) => Promise<unknown>): Promise<Answer> {
  const durations: number[] = [];
  const startedAt = performance.now();
  let number = 0;
  const goesOn = () =>
    count > 0 ? number < count : performance.now() - startedAt < Number(flags.ms);
  await Promise.all(Array.from({ length: inflight }, async () => {
    while (goesOn()) {
      const at = performance.now();
      await once(number++);
      durations.push(performance.now() - at);
    }
  }));
  return answer(durations, startedAt);
}

/** Opens all followers; resolves with their ends once each has had the first byte. */
async function openFollowers(): Promise<Promise<number>[]> {
  const ids: string[] = [];
  for (let i = 0; i < Number(flags.processes); i++) ids.push(await start(i));
  const ends: Promise<number>[] = [];
  const firsts: Promise<void>[] = [];
  for (let i = 0; i < ids.length * Number(flags.followers); i++) {
    const { promise, resolve } = Promise.withResolvers<void>();
    firsts.push(promise);
    ends.push(drain(follow(i, ids[i % ids.length]!), () => resolve()));
  }
  await Promise.race([Promise.all(firsts), Promise.all(ends)]);
  return ends;
}

async function hold(state: Answer): Promise<never> {
  console.log(JSON.stringify(state));
  await Deno.stdin.read(new Uint8Array(16));
  Deno.exit(0);
}

const OPERATIONS: Readonly<Record<string, () => Promise<Answer | void>>> = {
  async id() {
    const id = await start(0);
    await drain(follow(0, id));
    return { id };
  },
  unary: () =>
    repeat((number) =>
      unary(number, getProcess, create(getProcess.input, { processId: flags.id }))
    ),
  async start() {
    const starts: number[] = [];
    const result = await repeat(async (number) => {
      const at = performance.now();
      const id = await start(number);
      starts.push(performance.now() - at);
      await drain(follow(number, id));
    });
    return { ...result, startMs: milliseconds(starts.toSorted((a, b) => a - b), 0.5) };
  },
  async flood() {
    const startedAt = performance.now();
    await drain(follow(0, await start(0), flags.follow === "true" ? 0n : INT64_MAX));
    return answer([0], startedAt, { bytes });
  },
  async latency() {
    const startedAt = performance.now();
    const durations: number[] = [];
    await drain(follow(0, await start(0)), (data) => {
      const nowMs = performance.timeOrigin + performance.now();
      const view = new DataView(data.buffer, data.byteOffset, data.length);
      for (let at = 0; at + 8 <= data.length; at += 8) {
        durations.push(nowMs - Number(view.getBigUint64(at, true)) / 1e6);
      }
    });
    return answer(durations, startedAt);
  },
  async fan() {
    const startedAt = performance.now();
    const ends = await openFollowers();
    const releasedAt = performance.now();
    // Open until the last child has opened its end.
    using _fifo = await Deno.open(flags.path, { read: true, write: true });
    await Promise.all(ends);
    const seconds = (performance.now() - releasedAt) / 1000;
    const readySeconds = (releasedAt - startedAt) / 1000;
    return { count: ends.length, bytes: bytes * ends.length, seconds, readySeconds };
  },
  async hold() {
    const ends = await openFollowers();
    await hold({ count: ends.length });
  },
  async read() {
    const result = await repeat((number) =>
      drain(open(
        number,
        readFile,
        create(readFile.input, { path: flags.path.replace("%d", String(number)) }),
      ))
    );
    return { ...result, bytes: bytes * Number(result["count"]) };
  },
  async write() {
    const result = await repeat(upload);
    return { ...result, bytes: bytes * Number(result["count"]) };
  },
  async stall() {
    const stream = open(0, readFile, create(readFile.input, { path: flags.path }));
    const first = await new Promise<{ data: Uint8Array }>((resolve) =>
      stream.once("data", resolve)
    );
    stream.pause();
    await hold({ count: 1, bytes: first.data.length });
  },
  async emit() {
    const stamp = new DataView(new ArrayBuffer(8));
    for (let i = 0; i < count; i++) {
      await new Promise((resolve) => setTimeout(resolve, Number(flags.every)));
      const nowMs = performance.timeOrigin + performance.now();
      stamp.setBigUint64(0, BigInt(Math.round(nowMs * 1e6)), true);
      Deno.stdout.writeSync(new Uint8Array(stamp.buffer));
    }
  },
};

const result = await OPERATIONS[operation ?? ""]!();
if (result !== undefined) console.log(JSON.stringify(result));
for (const client of clients) client?.close();
