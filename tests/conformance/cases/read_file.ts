// ReadFile: every byte of a regular file, in messages that any client takes.
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { rejectsWith } from "../../helpers/agent_api.ts";
import type { FileChunk } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import type { ContractCase } from "../contract_case.ts";

const MIB = 1024 * 1024;

/** Bytes in which no two places look alike. */
export function patternBytes(length: number): Uint8Array<ArrayBuffer> {
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let index = 0; index < words.length; index++) words[index] = Math.imul(index, 2654435761);
  return new Uint8Array(words.buffer, 0, length);
}

/** `assertEquals` on megabytes would compare byte by byte in JavaScript, and print them. */
export function sameBytes(actual: Uint8Array, wanted: Uint8Array): void {
  assertEquals(actual.length, wanted.length);
  const differs = actual.findIndex((byte, index) => byte !== wanted[index]);
  assert(differs === -1, `they differ from byte ${differs} on`);
}

export const readFileCases: readonly ContractCase[] = [
  {
    id: "read.sizes",
    line: "streams a regular file, whatever its size",
    async run({ api, dir }) {
      const sizes = [
        1,
        4095,
        65_536,
        MIB - 4097,
        MIB - 4096,
        MIB - 4095,
        MIB,
        MIB + 1,
        9 * MIB + 7,
      ];
      for (const size of sizes) {
        const bytes = patternBytes(size);
        await api.write(`${dir}/file`, bytes);
        sameBytes(await api.read(`${dir}/file`), bytes);
      }
    },
  },
  {
    id: "read.message-size",
    line: "default clients refuse messages of 4 MiB: none is over 1 MiB",
    async run({ api, dir }) {
      await api.sh('head -c 9000000 /dev/zero >"$1/file"', dir);
      const { call, largestMessage } = api.readStream(`${dir}/file`);
      let size = 0;
      for await (const chunk of call) size += (chunk as FileChunk).data.length;
      assertEquals(size, 9_000_000);
      assert(largestMessage() <= MIB, `${largestMessage()}`);
    },
  },
  {
    id: "read.empty",
    line: "an empty file: no message, OK",
    async run({ api, dir }) {
      await api.sh(': >"$1/empty"', dir);
      const { call } = api.readStream(`${dir}/empty`);
      let messages = 0;
      for await (const _ of call) messages++;
      assertEquals(messages, 0);
    },
  },
  {
    id: "read.slow-client",
    line:
      "constant memory however slow the client: a stalled read holds up nobody and ends complete",
    async run({ api, dir }) {
      await api.sh('head -c 100000000 /dev/zero >"$1/file"', dir);
      const { call } = api.readStream(`${dir}/file`);
      const chunks = call[Symbol.asyncIterator]();
      let size = (await chunks.next()).value.data.length;
      // Other calls go on while this one is not read.
      for (let round = 0; round < 5; round++) {
        await api.write(`${dir}/other`, `${round}`);
        assertEquals(await api.readText(`${dir}/other`), `${round}`);
      }
      for (let next = await chunks.next(); !next.done; next = await chunks.next()) {
        size += next.value.data.length;
      }
      assertEquals(size, 100_000_000);
    },
  },
  {
    id: "read.cancel",
    line:
      "a client that goes away ends the call's work: 100 cancelled reads leave an agent that answers",
    async run({ api, dir }) {
      await api.sh('head -c 50000000 /dev/zero >"$1/file"', dir);
      for (let round = 0; round < 100; round++) {
        const { call } = api.readStream(`${dir}/file`);
        await call[Symbol.asyncIterator]().next();
        call.cancel();
      }
      await api.write(`${dir}/small`, "S");
      assertEquals(await api.readText(`${dir}/small`), "S");
    },
  },
  {
    id: "read.shrinks",
    line: "reads what is there until the end of the file, also when it shrinks",
    async run({ api, dir }) {
      await api.sh('head -c 60000000 /dev/zero >"$1/file"', dir);
      const { call } = api.readStream(`${dir}/file`);
      const chunks = call[Symbol.asyncIterator]();
      let size = (await chunks.next()).value.data.length;
      await api.sh('truncate -s 1 "$1/file"', dir);
      for (let next = await chunks.next(); !next.done; next = await chunks.next()) {
        size += next.value.data.length;
      }
      assert(size >= 1 && size < 60_000_000, `${size}`);
    },
  },
  {
    id: "read.grows",
    line: "... and when it grows",
    async run({ api, dir }) {
      await api.sh('head -c 60000000 /dev/zero >"$1/file"', dir);
      const { call } = api.readStream(`${dir}/file`);
      const chunks = call[Symbol.asyncIterator]();
      let size = (await chunks.next()).value.data.length;
      await api.sh('head -c 1000 /dev/zero >>"$1/file"', dir);
      for (let next = await chunks.next(); !next.done; next = await chunks.next()) {
        size += next.value.data.length;
      }
      assertEquals(size, 60_001_000);
    },
  },
  {
    id: "read.old-or-new",
    line: "readers see the old or the new content, never a mix",
    async run({ api, dir }) {
      const size = 20_000_000;
      const [old, replaced] = [new Uint8Array(size).fill(1), new Uint8Array(size).fill(2)];
      await api.write(`${dir}/file`, old);
      const { call } = api.readStream(`${dir}/file`);
      const chunks = call[Symbol.asyncIterator]();
      const seen = new Set<number>((await chunks.next()).value.data);
      await api.write(`${dir}/file`, replaced);
      for (let next = await chunks.next(); !next.done; next = await chunks.next()) {
        for (const byte of next.value.data.subarray(0, 100)) seen.add(byte);
        seen.add(next.value.data.at(-1));
      }
      assertEquals(seen, new Set([1]));
      sameBytes(await api.read(`${dir}/file`), replaced);
    },
  },
  {
    id: "read.deadline",
    line: "deadlines are honoured, also by a stream that nobody reads",
    async run({ api, dir }) {
      await api.sh('head -c 50000000 /dev/zero >"$1/file"', dir);
      const { call } = api.readStream(`${dir}/file`, { deadlineMs: 300 });
      const ended = new Promise((_, reject) => call.once("error", reject));
      await rejectsWith(ended, status.DEADLINE_EXCEEDED);
    },
  },
];
