// Uploads that stop half-way and downloads that nobody reads lock nobody else out.
import { assert, assertEquals } from "@std/assert";
import { AgentApi } from "../helpers/agent_api.ts";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { openDescriptors, residentBytes } from "../helpers/proc_stats.ts";

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
