// StreamProcessOutputs: many readers, slow ones, gone ones; a child that nobody reads; late output.
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase, Target } from "../contract_case.ts";
import { createGate } from "../gate.ts";

const MIB = 1024 * 1024;

/** Prints `$1` zero bytes. */
const ZEROS = 'head -c "$1" /dev/zero';

/** Asks for snapshots until one holds `text`: no event tells when late output is stored. */
async function untilStored(api: Target["api"], id: string, text: string): Promise<string> {
  const deadline = Date.now() + 30_000;
  for (;;) {
    using snapshot = api.outputs(id);
    const seen = (await snapshot.rest()).text;
    if (seen.includes(text) || Date.now() > deadline) return seen;
  }
}

/** First kept offsets that an OUT_OF_RANGE names in its trailers. */
function firstOffsets(error: { metadata: { get(name: string): unknown[] } }) {
  const read = (name: string) => Number(error.metadata.get(`ateenv-first-${name}-offset`)[0]);
  return { stdout: read("stdout"), stderr: read("stderr") };
}

export const outputReaderCases: readonly ContractCase[] = [
  {
    id: "readers.drained",
    line: "the child is drained whether or not anyone reads",
    async run({ api }) {
      const id = await api.start(["sh", "-c", `${ZEROS}; exit 8`, "sh", `${16 * MIB}`]);
      assertEquals((await api.finished(id)).exitCode, 8);
      using reader = api.outputs(id);
      assertEquals((await reader.rest()).stdout.length, 16 * MIB);
    },
  },
  {
    id: "readers.stalled",
    line: "a stalled reader delays nobody, neither another reader nor the child",
    async run({ api }) {
      const size = 32 * MIB;
      const id = await api.start(["sh", "-c", ZEROS, "sh", `${size}`]);
      using stalled = api.outputs(id, { follow: true });
      await stalled.next();
      using live = api.outputs(id, { follow: true });
      assertEquals((await live.rest()).stdout.length, size);
      assertEquals((await api.get(id)).status, ProcessStatus.COMPLETED);
      assertEquals((await stalled.rest()).stdout.length, size);
    },
  },
  {
    id: "readers.many",
    line: "each reader goes at its own pace: 50 of them get every byte",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const text = 'echo go; read _ <"$1"; seq 1 20000';
      const id = await api.start(["sh", "-c", text, "sh", gate.path]);
      const readers = Array.from({ length: 50 }, () => api.outputs(id, { follow: true }));
      for (const reader of readers) await reader.until("go\n");
      await gate.open();
      const texts = await Promise.all(readers.map(async (reader) => (await reader.rest()).text));
      const lines = Array.from({ length: 20000 }, (_, index) => `${index + 1}\n`).join("");
      for (const seen of texts) assertEquals(seen, `go\n${lines}`);
    },
  },
  {
    id: "readers.gone",
    line: "a client that goes away ends its stream's work at once, and nothing else",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const text = 'echo one; read _ <"$1"; echo two; exit 2';
      const id = await api.start(["sh", "-c", text, "sh", gate.path]);
      for (let round = 0; round < 5; round++) {
        using reader = api.outputs(id, { follow: true });
        await reader.until("one\n");
      }
      assertEquals((await api.get(id)).status, ProcessStatus.RUNNING);
      await gate.open();
      using last = api.outputs(id, { follow: true });
      assertEquals((await last.rest()).text, "one\ntwo\n");
      assertEquals((await api.get(id)).exitCode, 2);
    },
  },
  {
    id: "readers.late-output",
    line: "output after the leader's exit is still drained (no SIGPIPE) and appended to the spool",
    async run(target) {
      const { api } = target;
      const [gate, second] = [await createGate(target), await createGate(target, "second")];
      const text = '(read _ <"$1"; echo late; read _ <"$2"; echo later) & echo early';
      const id = await api.start(["sh", "-c", text, "sh", gate.path, second.path]);
      await api.finished(id);
      await gate.open();
      assertEquals(await untilStored(api, id, "late\n"), "early\nlate\n");
      await second.open();
      assertEquals(await untilStored(api, id, "later\n"), "early\nlate\nlater\n");
      assertEquals((await api.get(id)).status, ProcessStatus.COMPLETED);
    },
  },
  {
    id: "retention.output-limit",
    line: "--output-limit N: at least the newest N bytes, at most N + N/8; below: OUT_OF_RANGE",
    settings: { flags: ["--output-limit", "64KiB"] },
    async run({ api }) {
      const limit = 64 * 1024;
      // Not followed: a follower of so fast a child is overtaken.
      const text = "seq 1 300000 | head -c 1000000; echo e >&2";
      const id = await api.start(["sh", "-c", text]);
      await api.finished(id);
      const all = Array.from({ length: 300000 }, (_, index) => `${index + 1}\n`).join("")
        .slice(0, 1_000_000);
      for (const follow of [false, true]) {
        const error = await rejectsWith(api.outputs(id, { follow }).rest(), status.OUT_OF_RANGE);
        const first = firstOffsets(error);
        assert(error.details.includes(`${first.stdout}`), error.details);
        assertEquals(first.stderr, 0);
        const kept = all.length - first.stdout;
        assert(kept >= limit && kept <= limit + limit / 8, `${kept} bytes are kept`);
        await rejectsWith(
          api.outputs(id, { stdoutOffset: first.stdout - 1, follow }).rest(),
          status.OUT_OF_RANGE,
        );
        using reader = api.outputs(id, { stdoutOffset: first.stdout, follow });
        assertEquals((await reader.rest()).text, all.slice(first.stdout));
      }
    },
  },
  {
    id: "retention.overtaken",
    line: "a follower that was overtaken on the way: OUT_OF_RANGE; never skip silently",
    settings: { flags: ["--output-limit", "64KiB"] },
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const size = 64 * MIB;
      const text = `echo 1; read _ <"$1"; seq 2 100000000 | head -c ${size - 2}`;
      const id = await api.start(["sh", "-c", text, "sh", gate.path]);
      using slow = api.outputs(id, { follow: true });
      await slow.until("1\n");
      await gate.open();
      await api.finished(id);
      const error = await rejectsWith(slow.rest(), status.OUT_OF_RANGE);
      const first = firstOffsets(error);
      assert(first.stdout > slow.stdout.length, "it was told of a gap that there is not");
      let line = 1;
      for (const seen of slow.text.split("\n").slice(0, -1)) assertEquals(seen, `${line++}`);
      // What it was told held when it was overtaken; the child wrote on.
      const now = firstOffsets(
        await rejectsWith(api.outputs(id).rest(), status.OUT_OF_RANGE),
      );
      assert(now.stdout >= first.stdout);
      using rest = api.outputs(id, { stdoutOffset: now.stdout, follow: true });
      assertEquals((await rest.rest()).stdout.length, size - now.stdout);
    },
  },
  {
    id: "retention.spool-limit",
    line: "--spool-limit: the spools of finished processes go, oldest first (then NOT_FOUND)",
    settings: { flags: ["--spool-limit", "8MiB"] },
    async run({ api }) {
      const write = async () => {
        const id = await api.start(["sh", "-c", ZEROS, "sh", `${3 * MIB}`]);
        await api.finished(id);
        return id;
      };
      const [first, second, third] = [await write(), await write(), await write()];
      await rejectsWith(api.get(first), status.NOT_FOUND);
      for (const id of [second, third]) {
        using reader = api.outputs(id);
        assertEquals((await reader.rest()).stdout.length, 3 * MIB);
      }
    },
  },
  {
    id: "retention.spool-limit-running",
    line: "then the oldest segments of running streams, the largest first, down to 1 MiB each",
    settings: { flags: ["--spool-limit", "8MiB"] },
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const small = await api.start(["sh", "-c", "head -c 500000 /dev/zero; exec sleep 1000"]);
      const text = `${ZEROS}; echo done >&2; read _ <"$2"`;
      const large = await api.start(["sh", "-c", text, "sh", `${24 * MIB}`, gate.path]);
      using follower = api.outputs(large, { stdoutOffset: 24 * MIB, follow: true });
      while (follower.stderr.length === 0) await follower.next();
      const error = await rejectsWith(api.outputs(large).rest(), status.OUT_OF_RANGE);
      const kept = 24 * MIB - firstOffsets(error).stdout;
      assert(kept >= MIB && kept <= 8 * MIB, `${kept} bytes are kept`);
      using reader = api.outputs(small);
      assertEquals((await reader.rest()).stdout.length, 500_000);
      await gate.open();
      await follower.rest();
      await api.kill(small);
    },
  },
  {
    id: "retention.count",
    line: "finished ones: the newest (--retain); after that NOT_FOUND; running ones never dropped",
    settings: { flags: ["--retain", "3"] },
    async run({ api }) {
      const running = await api.start(["sleep", "1000"]);
      const ids: string[] = [];
      for (let count = 0; count < 6; count++) {
        const { process } = await api.run(["sh", "-c", `exit ${count}`]);
        ids.push(process.processId);
      }
      for (const id of ids.slice(0, 3)) await rejectsWith(api.get(id), status.NOT_FOUND, id);
      for (const id of ids.slice(3)) assertEquals((await api.get(id)).status, ProcessStatus.FAILED);
      assertEquals((await api.get(running)).status, ProcessStatus.RUNNING);
      await api.kill(running);
    },
  },
  {
    id: "retention.age",
    line: "finished ones: --retain-for; after that NOT_FOUND; running ones never dropped",
    settings: { flags: ["--retain-for", "500ms"] },
    async run({ api }) {
      const running = await api.start(["sleep", "1000"]);
      const { process } = await api.run(["true"]);
      // A clock that no test can hold: pace the questions by processes, and bound them.
      const deadline = Date.now() + 30_000;
      for (;;) {
        const isThere = await api.get(process.processId).then(() => true, () => false);
        if (!isThere) break;
        assert(Date.now() < deadline, "it is never dropped");
        await api.sh("sleep 0.2");
      }
      await rejectsWith(api.get(process.processId), status.NOT_FOUND);
      assertEquals((await api.get(running)).status, ProcessStatus.RUNNING);
      await api.kill(running);
    },
  },
];
