// StreamProcessOutputs: the bytes, their order, their offsets, and when a stream ends.
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { INT64_MAX, rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase } from "../contract_case.ts";
import { createGate } from "../gate.ts";

const MIB = 1024 * 1024;
const decoder = new TextDecoder();

/** Shell text that prints the numbers from 1 on, `$1` bytes of them. */
const NUMBERS = 'seq 1 100000000 | head -c "$1"';

/** What NUMBERS prints. */
function numbers(length: number): string {
  const lines: string[] = [];
  for (let line = 1, size = 0; size < length; line++) {
    lines.push(`${line}\n`);
    size += lines.at(-1)!.length;
  }
  return lines.join("").slice(0, length);
}

export const outputCases: readonly ContractCase[] = [
  {
    id: "outputs.exact",
    line: "bytes as the child wrote them: nothing added, nothing decoded, each stream in order",
    async run({ api, dir, root }) {
      const bytes = Uint8Array.from({ length: 256 * 64 }, (_, index) => index * 7 & 0xff);
      await api.write(`${dir}/bytes`, bytes);
      const { stdout, stderr } = await api.run([
        "sh",
        "-c",
        'cat "$1"; tail -c 1000 "$1" >&2; printf "\\377\\000\\r\\n" >&2',
        "sh",
        `${root}/${dir}/bytes`,
      ]);
      assertEquals(stdout, bytes);
      assertEquals(stderr, new Uint8Array([...bytes.subarray(-1000), 0xff, 0, 13, 10]));
    },
  },
  {
    id: "outputs.message-size",
    line: "in messages of at most 1 MiB (default clients refuse 4 MiB)",
    async run({ api }) {
      const id = await api.start(["sh", "-c", NUMBERS, "sh", `${6 * MIB}`]);
      await api.finished(id);
      using reader = api.outputs(id);
      assertEquals((await reader.rest()).stdout.length, 6 * MIB);
      assert(reader.largestMessage() <= MIB, `${reader.largestMessage()}`);
      assertEquals(reader.text, numbers(6 * MIB));
    },
  },
  {
    id: "outputs.snapshot",
    line: "follow=false: everything stored up to now, then OK",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const id = await api.start(["sh", "-c", 'echo one; read _ <"$1"; echo two', "sh", gate.path]);
      using follower = api.outputs(id, { follow: true });
      await follower.until("one\n");
      using snapshot = api.outputs(id);
      assertEquals((await snapshot.rest()).text, "one\n");
      assertEquals((await api.get(id)).status, ProcessStatus.RUNNING);
      await gate.open();
      await follower.rest();
      using last = api.outputs(id);
      assertEquals((await last.rest()).text, "one\ntwo\n");
    },
  },
  {
    id: "outputs.snapshot-empty",
    line: "a snapshot of nothing is OK without a message",
    async run({ api }) {
      const id = await api.start(["sleep", "1000"]);
      using snapshot = api.outputs(id);
      assertEquals((await snapshot.rest()).stdout.length, 0);
      await api.kill(id);
      using last = api.outputs(id, { follow: true });
      assertEquals(await last.next(), false);
    },
  },
  {
    id: "outputs.follow",
    line: "follow=true: everything, then new output as it comes",
    async run(target) {
      const { api } = target;
      const gates = [];
      for (const name of ["1", "2", "3"]) gates.push(await createGate(target, name));
      const text = 'echo 0; for gate; do read _ <"$gate"; echo "${gate##*/}"; done';
      const id = await api.start(["sh", "-c", text, "sh", ...gates.map(({ path }) => path)]);
      using follower = api.outputs(id, { follow: true });
      for (const [step, gate] of gates.entries()) {
        // Each comes while the process waits for the next.
        await follower.until(`${step}\n`);
        await gate.open();
      }
      assertEquals((await follower.rest()).text, "0\n1\n2\n3\n");
    },
  },
  {
    id: "outputs.follow-ends",
    line: "OK on a follow always means finished; GetProcess then already says so",
    async run({ api }) {
      for (let round = 0; round < 20; round++) {
        const id = await api.start(["sh", "-c", `echo x; exit ${round}`]);
        using follower = api.outputs(id, { follow: true });
        assertEquals((await follower.rest()).text, "x\n");
        const process = await api.get(id);
        assertEquals(process.status, round === 0 ? ProcessStatus.COMPLETED : ProcessStatus.FAILED);
        assertEquals(process.exitCode, round);
      }
    },
  },
  {
    id: "outputs.closed-stdout",
    line: "a follow does not end before the process, also if the child closes its streams",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const text = 'echo x; exec >&- 2>&-; read _ <"$1"; exit 6';
      const id = await api.start(["sh", "-c", text, "sh", gate.path]);
      using follower = api.outputs(id, { follow: true });
      await follower.until("x\n");
      assertEquals((await api.get(id)).status, ProcessStatus.RUNNING);
      await gate.open();
      await follower.rest();
      assertEquals((await api.get(id)).exitCode, 6);
    },
  },
  {
    id: "outputs.offsets",
    line: "offsets are per stream, in bytes the child wrote",
    async run({ api }) {
      const { process } = await api.run(["sh", "-c", "printf 0123456789; printf abcdefgh >&2"]);
      for (const [out, err] of [[0, 0], [3, 2], [9, 7], [10, 0], [0, 8]] as const) {
        for (const follow of [false, true]) {
          using reader = api.outputs(process.processId, {
            stdoutOffset: out,
            stderrOffset: err,
            follow,
          });
          await reader.rest();
          assertEquals(reader.text, "0123456789".slice(out));
          assertEquals(decoder.decode(reader.stderr), "abcdefgh".slice(err));
        }
      }
    },
  },
  {
    id: "outputs.offset-past-end",
    line: "at or past the end: nothing is sent; a follow waits",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const text = 'printf 01234; read _ <"$1"; printf 56789abc';
      const id = await api.start(["sh", "-c", text, "sh", gate.path]);
      using first = api.outputs(id, { follow: true });
      await first.until("01234");
      using snapshot = api.outputs(id, { stdoutOffset: 10 });
      assertEquals(await snapshot.next(), false);
      using waiting = api.outputs(id, { stdoutOffset: 10, follow: true });
      const rest = waiting.rest();
      // Another reader at the same place shows that the waiting one was taken up before the gate opens.
      assertEquals((await api.get(id)).status, ProcessStatus.RUNNING);
      await gate.open();
      assertEquals((await rest).text, "abc");
    },
  },
  {
    id: "outputs.int64-max",
    line: "INT64 max is the SDKs' way of waiting for the exit",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const id = await api.start(["sh", "-c", 'echo x; read _ <"$1"; exit 4', "sh", gate.path]);
      using waiting = api.outputs(id, {
        stdoutOffset: INT64_MAX,
        stderrOffset: INT64_MAX,
        follow: true,
      });
      const ended = waiting.next();
      assertEquals((await api.get(id)).status, ProcessStatus.RUNNING);
      await gate.open();
      assertEquals(await ended, false);
      assertEquals((await api.get(id)).exitCode, 4);
      using snapshot = api.outputs(id, { stdoutOffset: INT64_MAX, stderrOffset: INT64_MAX });
      assertEquals(await snapshot.next(), false);
    },
  },
  {
    id: "outputs.negative",
    line: "negative: INVALID_ARGUMENT `offsets cannot be negative`",
    async run({ api }) {
      const id = await api.start(["true"]);
      for (const offsets of [{ stdoutOffset: -1 }, { stderrOffset: -(2n ** 63n) }]) {
        for (const follow of [false, true]) {
          await rejectsWith(
            api.outputs(id, { ...offsets, follow }).rest(),
            status.INVALID_ARGUMENT,
            "offsets cannot be negative",
          );
        }
      }
      await api.finished(id);
    },
  },
  {
    id: "outputs.re-read",
    line: "re-reading from an offset is exact, any number of times",
    async run({ api }) {
      const wanted = numbers(2 * MIB);
      const { process, text } = await api.run(["sh", "-c", NUMBERS, "sh", `${2 * MIB}`]);
      assertEquals(text, wanted);
      for (const offset of [1, 4095, 4097, 65_536, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 1, MIB]) {
        using reader = api.outputs(process.processId, { stdoutOffset: offset, follow: true });
        assertEquals((await reader.rest()).text, wanted.slice(offset));
      }
    },
  },
  {
    id: "outputs.resume",
    line: "a stream that is cut again and again and resumed by offset misses and repeats nothing",
    async run({ api }) {
      const wanted = numbers(4 * MIB);
      const id = await api.start(["sh", "-c", NUMBERS, "sh", `${4 * MIB}`]);
      let text = "";
      for (let isEnded = false, cuts = 0; !isEnded; cuts++) {
        using reader = api.outputs(id, { stdoutOffset: text.length, follow: true });
        // The first twenty streams are cut after a message each.
        if (cuts < 20) isEnded = !await reader.next();
        else isEnded = (await reader.rest()).isEnded;
        text += reader.text;
      }
      assertEquals(text, wanted);
    },
  },
];
