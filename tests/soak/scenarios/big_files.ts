// Files of a gibibyte through both calls: equal hashes, and an agent that stays small; and a reader that stalls.
import { createHash } from "node:crypto";
import { AgentApi } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { residentBytes } from "../../helpers/proc_stats.ts";
import { atMost, createRandom, exactly, scaled, type Scenario } from "../scenario.ts";

const MESSAGE_BYTES = 1024 * 1024;
const STALL_LIMIT_BYTES = 32 * 2 ** 20;

export const bigFiles: Scenario = {
  name: "big-files",
  async run(context) {
    await using agent = await startAgentProcess();
    using api = new AgentApi(agent.address);
    const messages = scaled(context, 1024, 64);
    const random = createRandom(context.seed);
    const message = new Uint8Array(MESSAGE_BYTES).map(() => random() * 256);
    let peak = 0;
    const look = async () => peak = Math.max(peak, await residentBytes(agent.pid));

    const sent = createHash("sha256");
    const upload = api.upload({ deadlineMs: 600_000 });
    for (let index = 0; index < messages; index++) {
      new DataView(message.buffer).setUint32(0, index);
      sent.update(message);
      // A copy: grpc-js keeps what it was given until it is sent.
      const path = index === 0 ? { path: "big" } : {};
      await upload.send({ ...path, chunk: message.slice() });
      if (index % 64 === 0) await look();
    }
    upload.end();
    const written = await upload.answer;
    await look();

    const received = createHash("sha256");
    let bytes = 0;
    let pieces = 0;
    for await (const chunk of api.readStream("big", { deadlineMs: 600_000 }).call) {
      received.update(chunk.data);
      bytes += chunk.data.length;
      if (pieces++ % 64 === 0) await look();
    }
    await look();

    const before = await bytesReadBy(agent.pid);
    const stalled = api.readStream("big");
    const first = await stalled.call[Symbol.asyncIterator]().next();
    // Nothing more is read here: the agent has to stop by itself. Calls that are answered show that it has
    // had its turns.
    for (let call = 0; call < 50; call++) await api.read("big-not-there").catch(() => {});
    const ahead = await bytesReadBy(agent.pid) - before - first.value.data.length;
    stalled.call.cancel();
    return [
      exactly("bytes_written", Number(written), messages * MESSAGE_BYTES),
      exactly("bytes read back", bytes, messages * MESSAGE_BYTES),
      exactly("equal hashes", received.digest("hex") === sent.digest("hex"), true),
      atMost("highest RSS", peak / 2 ** 20, 256, "MiB"),
      atMost("read ahead of a stalled client", ahead / 2 ** 20, STALL_LIMIT_BYTES / 2 ** 20, "MiB"),
    ];
  },
};

/** Bytes that the process has read from files, sockets and pipes. */
async function bytesReadBy(pid: number): Promise<number> {
  const { stdout } = await new Deno.Command("cat", { args: [`/proc/${pid}/io`] }).output();
  return Number(/^rchar: (\d+)/m.exec(new TextDecoder().decode(stdout))![1]);
}
