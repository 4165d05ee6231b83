// Messages that a client never ends, or sends compressed a thousand times: they cost the client its calls,
// not the agent its memory.
import { assert, assertEquals } from "@std/assert";
import http2 from "node:http2";
import { gzipSync } from "node:zlib";
import { AgentApi } from "../helpers/agent_api.ts";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { residentBytes } from "../helpers/proc_stats.ts";
import {
  callHeaders,
  DATA,
  END_HEADERS,
  END_STREAM,
  envelope,
  frame,
  HEADERS,
  RawConnection,
  RST_STREAM,
} from "../helpers/raw_http2.ts";

const CALLS = 300;
const FRAME_BYTES = 16_000;
/** Idle it is 75 MiB; without the budget the calls below cost more than 2 GiB. */
const MOST_BYTES = 768 * 1024 * 1024;

function dataFrames(stream: number, bytes: Uint8Array, lastFlags: number): Uint8Array[] {
  const frames: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += FRAME_BYTES) {
    const isLast = at + FRAME_BYTES >= bytes.length;
    frames.push(frame(DATA, isLast ? lastFlags : 0, stream, bytes.subarray(at, at + FRAME_BYTES)));
  }
  return frames;
}

Deno.test("hundreds of gzip bombs at once: each is answered, and the memory stays small", async () => {
  await using agent = await startAgentProcess();
  // An unknown field of 15 MiB zeros.
  const field = new Uint8Array([15 << 3 | 2, 0x80, 0x80, 0xc0, 0x07]);
  const content = new Uint8Array(field.length + 15 * 1024 * 1024);
  content.set(field);
  const bomb = envelope(gzipSync(content), 1);
  using raw = await RawConnection.open(agent.address);
  const open = new Set<number>();
  const answers = async () => {
    while (open.size > 0) {
      const received = await raw.receive();
      assert(received !== undefined, `${open.size} calls were not answered`);
      const { type, flags, stream } = received;
      if (type === RST_STREAM || type === HEADERS && (flags & END_STREAM) !== 0) {
        open.delete(stream);
      }
    }
  };
  const bytes: Uint8Array[] = [];
  for (let call = 0; call < CALLS; call++) {
    const stream = 2 * call + 1;
    open.add(stream);
    const headers = callHeaders("/ateenv.v1alpha.ProcessService/GetProcess", {
      "grpc-encoding": "gzip",
    });
    bytes.push(frame(HEADERS, END_HEADERS, stream, headers));
    bytes.push(...dataFrames(stream, bomb, END_STREAM));
  }
  const answered = answers();
  for (const piece of bytes) assert(await raw.send(piece));
  await answered;
  const resident = await residentBytes(agent.pid);
  assert(resident < MOST_BYTES, `${resident / 2 ** 20} MiB`);
  using api = new AgentApi(agent.address);
  assertEquals(await api.sh("echo served"), "served");
});

Deno.test("messages that never end: the memory stays small, and modest uploads go on", async () => {
  await using agent = await startAgentProcess();
  const session = http2.connect(`http://${agent.address}`);
  session.on("error", () => {});
  const begin = envelope(new Uint8Array(), 0, 15 * 1024 * 1024);
  const part = new Uint8Array(14 * 1024 * 1024);
  const requests = Array.from({ length: 80 }, () =>
    session.request({
      ":method": "POST",
      ":path": "/ateenv.v1alpha.FileSystemService/WriteFile",
      "content-type": "application/grpc",
      te: "trailers",
    }));
  // Either most of them are refused one by one, or the whole connection is ended for its flood.
  const ended = new Promise<void>((resolve) => session.once("close", resolve));
  const enough = Promise.withResolvers<void>();
  let refused = 0;
  for (const request of requests) {
    request.on("error", () => {});
    request.on("response", () => {
      if (++refused > 60) enough.resolve();
    });
    request.resume();
    request.write(begin);
    request.write(part);
  }
  await Promise.race([enough.promise, ended]);
  using api = new AgentApi(agent.address);
  await api.write("file", new Uint8Array(1_000_000));
  assertEquals(await api.sh("stat -c %s file"), "1000000");
  const resident = await residentBytes(agent.pid);
  assert(resident < MOST_BYTES, `${resident / 2 ** 20} MiB`);
  session.destroy();
  await ended;
});
