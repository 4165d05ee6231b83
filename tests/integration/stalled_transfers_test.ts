// Uploads that stop half-way and downloads that nobody reads lock nobody else out.
import { assert, assertEquals } from "@std/assert";
import { AgentApi } from "../helpers/agent_api.ts";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { bytesRead, openDescriptors, residentBytes } from "../helpers/proc_stats.ts";
import {
  callHeaders,
  DATA,
  END_HEADERS,
  END_STREAM,
  envelope,
  frame,
  HEADERS,
  RawConnection,
  SETTINGS,
} from "../helpers/raw_http2.ts";

const STALLED = 130;

Deno.test("hundreds of half uploads and unread downloads: others are served, descriptors are left", async () => {
  await using agent = await startAgentProcess({ before: "ulimit -n 320" });
  using hostile = new AgentApi(agent.address);
  using api = new AgentApi(agent.address);
  await api.write("large", new Uint8Array(8 * 1024 * 1024));
  const uploads = Array.from({ length: STALLED }, () => hostile.upload());
  await Promise.all(
    uploads.map((upload, index) =>
      upload.send({ path: `half-${index}`, chunk: new Uint8Array(9) })
    ),
  );
  const downloads = Array.from({ length: STALLED }, () => hostile.readStream("large").call);
  // Nothing is read of them, so that all of them stall.
  assertEquals(await api.sh("echo served"), "served");
  // Each of these waits until somebody who has stalled for long enough is sent away.
  await api.write("file", "content");
  assertEquals(await api.readText("file"), "content");
  assert(await openDescriptors(agent.pid) < 300);
  assert(await residentBytes(agent.pid) < 1024 * 1024 * 1024);
  for (const upload of uploads) upload.cancel();
  for (const download of downloads) download.cancel();
});

const INITIAL_WINDOW_SIZE = 4;
const WINDOW_UPDATE = 8;
const LARGEST_WINDOW = 2 ** 31 - 1;

function uint32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

/** A connection that allows the server to send 2 GiB, on each of its streams and altogether. */
async function openBoundless(address: string): Promise<RawConnection> {
  const raw = await RawConnection.open(address);
  const setting = Uint8Array.of(0, INITIAL_WINDOW_SIZE, ...uint32(LARGEST_WINDOW));
  await raw.send(frame(SETTINGS, 0, 0, setting));
  await raw.send(frame(WINDOW_UPDATE, 0, 0, uint32(LARGEST_WINDOW - 65_535)));
  return raw;
}

Deno.test("a client with the largest windows that reads nothing: little is read ahead of it", async () => {
  await using agent = await startAgentProcess();
  using api = new AgentApi(agent.address);
  const bytes = 200 * 1024 * 1024;
  await api.sh(`head -c ${bytes} /dev/zero >large`);
  using raw = await openBoundless(agent.address);
  const path = new TextEncoder().encode("large");
  const request = envelope(Uint8Array.of(1 << 3 | 2, path.length, ...path));
  const before = await bytesRead(agent.pid);
  const streams = [1, 3, 5, 7];
  for (const stream of streams) {
    const headers = callHeaders("/ateenv.v1alpha.FileSystemService/ReadFile");
    await raw.send(frame(HEADERS, END_HEADERS, stream, headers));
    await raw.send(frame(DATA, END_STREAM, stream, request));
  }
  // Until it reads no more, or far too much.
  let last = -1;
  let now = 0;
  for (let same = 0; same < 20 && now < bytes;) {
    now = await bytesRead(agent.pid) - before;
    same = now === last && now > 0 ? same + 1 : 0;
    last = now;
  }
  assert(now < 32 * 1024 * 1024, `${now / 2 ** 20} MiB were read`);
  // What waits goes on when the client reads, to the last byte.
  let received = 0;
  let open = streams.length;
  while (open > 0) {
    const answer = await raw.receive();
    assert(answer !== undefined, "the connection was lost");
    if (answer.type === DATA) received += answer.payload.length;
    if (answer.type === HEADERS && (answer.flags & END_STREAM) !== 0) open--;
  }
  assert(received > streams.length * bytes, `${received} bytes`);
  assertEquals(await api.sh("echo served"), "served");
});
