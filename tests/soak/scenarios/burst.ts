// A burst of binary output that nobody reads, then read whole, and in pieces cut at random offsets.
import { createHash } from "node:crypto";
import { AgentApi } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { concatBytes } from "../../helpers/output_reader.ts";
import { residentBytes } from "../../helpers/proc_stats.ts";
import { atMost, createRandom, exactly, scaled, type Scenario } from "../scenario.ts";

const CUTS = 50;

function hash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

export const burst: Scenario = {
  name: "burst",
  async run(context) {
    await using agent = await startAgentProcess();
    using api = new AgentApi(agent.address);
    const random = createRandom(context.seed);
    const bytes = scaled(context, 64, 8) * 2 ** 20;
    const command = `head -c ${bytes} /dev/urandom | tee copy`;
    const id = await api.start(["sh", "-c", command]);
    const { exitCode } = await api.finished(id);
    const memory = await residentBytes(agent.pid);
    const copy = await Deno.readFile(`${agent.workspace}/copy`);
    using whole = api.outputs(id);
    await whole.rest();

    // Live this time: the follower is cut and comes back while the child writes.
    const liveId = await api.start(["sh", "-c", "cat copy; sleep 0.2; cat copy"]);
    const pieces: Uint8Array[] = [];
    let offset = 0;
    for (let cut = 0; cut < CUTS; cut++) {
      const until = Math.floor(random() * 2 * bytes);
      using reader = api.outputs(liveId, { stdoutOffset: offset, follow: true });
      while (offset + reader.stdoutBytes < until && await reader.next());
      const piece = reader.stdout;
      pieces.push(piece);
      offset += piece.length;
    }
    using last = api.outputs(liveId, { stdoutOffset: offset, follow: true });
    await last.rest();
    const pieced = concatBytes([...pieces, last.stdout]);
    return [
      exactly("exit code", exitCode, 0),
      exactly(
        `${bytes / 2 ** 20} MiB nobody read, same afterwards`,
        hash(whole.stdout),
        hash(copy),
      ),
      exactly(
        `a follower cut ${CUTS} times, same bytes`,
        hash(pieced),
        hash(concatBytes([copy, copy])),
      ),
      atMost("largest message", whole.largestMessage() / 2 ** 20, 1, "MiB"),
      atMost("RSS after the burst", memory / 2 ** 20, 256, "MiB"),
    ];
  },
};
