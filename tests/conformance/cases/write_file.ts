// WriteFile: messages, atomicity, and what is left when an upload does not end well.
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase, Target } from "../contract_case.ts";
import { patternBytes, sameBytes } from "./read_file.ts";

const { CANCELLED, DEADLINE_EXCEEDED, INVALID_ARGUMENT } = status;
const encoder = new TextEncoder();
const bytesOf = (text: string) => encoder.encode(text);

/** Everything below the case's directory, one name a line, sorted. */
function tree({ api, dir }: Target): Promise<string> {
  return api.sh('cd "$1" && find . -mindepth 1 | sort', dir);
}

/** That no temporary file is left at the top of the workspace either. */
async function noStrays({ api }: Target): Promise<void> {
  assertEquals(await api.sh("ls -d .ateenv-tmp 2>/dev/null; :"), "");
}

export const writeFileCases: readonly ContractCase[] = [
  {
    id: "write.none",
    line: "no message at all: INVALID_ARGUMENT `no file data received`",
    run: async ({ api }) =>
      void await rejectsWith(api.writeMessages([]), INVALID_ARGUMENT, "no file data received"),
  },
  {
    id: "write.sum",
    line: "bytes_written is the sum of all chunks",
    async run({ api, dir }) {
      const path = `${dir}/file`;
      const bytes = patternBytes(3_000_001);
      assertEquals(await api.write(path, bytes), 3_000_001n);
      sameBytes(await api.read(path), bytes);
      assertEquals(await api.sh('sha256sum <"$1"', path), await sha256(bytes));
      assertEquals(await api.write(path, ""), 0n);
      assertEquals(await api.sh('stat -c %s "$1"', path), "0");
    },
  },
  {
    id: "write.first-chunk-empty",
    line: "first message has path (and mode); its chunk may be empty, as may others",
    async run({ api, dir }) {
      const path = `${dir}/file`;
      const written = await api.writeMessages([
        { path, mode: 0o600 },
        { chunk: bytesOf("a") },
        {},
        { chunk: bytesOf("bc") },
      ]);
      assertEquals(written, 3n);
      assertEquals(await api.readText(path), "abc");
      assertEquals(await api.writeMessages([{ path }]), 0n);
      assertEquals(await api.readText(path), "");
    },
  },
  {
    id: "write.second-path",
    line: "a later message with another path: INVALID_ARGUMENT; nothing written",
    async run(target) {
      const { api, dir } = target;
      await api.write(`${dir}/a`, "old");
      await rejectsWith(
        api.writeMessages([{ path: `${dir}/a`, chunk: bytesOf("x") }, { path: `${dir}/b` }]),
        INVALID_ARGUMENT,
      );
      assertEquals(await api.readText(`${dir}/a`), "old");
      const path = `${dir}/c`;
      await api.writeMessages([{ path, chunk: bytesOf("c") }, { path, chunk: bytesOf("d") }]);
      assertEquals(await api.readText(path), "cd");
      assertEquals(await tree(target), "./a\n./c");
    },
  },
  {
    id: "write.late-path",
    line: "a first message without a path: INVALID_ARGUMENT `file path cannot be empty`",
    async run(target) {
      await rejectsWith(
        target.api.writeMessages([{ chunk: bytesOf("x") }, { path: `${target.dir}/a` }]),
        INVALID_ARGUMENT,
        "file path cannot be empty",
      );
      assertEquals(await tree(target), "");
    },
  },
  {
    id: "write.cancel",
    line: "a cancelled upload leaves the old file as it was and no temporary file",
    async run(target) {
      const { api, dir } = target;
      await api.write(`${dir}/file`, "old");
      for (let round = 0; round < 10; round++) {
        const upload = api.upload();
        for (let count = 0; count <= round; count++) {
          await upload.send({
            ...(count === 0 ? { path: `${dir}/file` } : {}),
            chunk: new Uint8Array(100_000),
          });
        }
        upload.cancel();
        await rejectsWith(upload.answer, CANCELLED);
        assertEquals(await api.readText(`${dir}/file`), "old");
      }
      assertEquals(await tree(target), "./file");
      await noStrays(target);
    },
  },
  {
    id: "write.cancel-at-the-end",
    line: "a cancel that arrives before the rename wins; old or new, never a part",
    async run(target) {
      const { api, dir } = target;
      await api.write(`${dir}/file`, "old");
      for (let round = 0; round < 20; round++) {
        const upload = api.upload();
        await upload.send({ path: `${dir}/file`, chunk: new Uint8Array(200_000).fill(65) });
        upload.end();
        upload.cancel();
        const outcome = await upload.answer.then(() => "answered", () => "cancelled");
        const size = Number(await api.sh('stat -c %s "$1/file"', dir));
        assert(size === 3 || size === 200_000, `${size} bytes`);
        if (outcome === "answered") assertEquals(size, 200_000);
      }
      assertEquals(await tree(target), "./file");
    },
  },
  {
    id: "write.deadline",
    line:
      "deadlines are honoured: a half-finished upload leaves the old file and no temporary file",
    async run(target) {
      const { api, dir } = target;
      await api.write(`${dir}/file`, "old");
      const upload = api.upload({ deadlineMs: 300 });
      await upload.send({ path: `${dir}/file`, chunk: new Uint8Array(100_000) });
      await rejectsWith(upload.answer, DEADLINE_EXCEEDED);
      assertEquals(await api.readText(`${dir}/file`), "old");
      assertEquals(await tree(target), "./file");
      await noStrays(target);
    },
  },
  {
    id: "write.unseen-until-done",
    line: "replaces the file atomically: the old content stands until the answer",
    async run(target) {
      const { api, dir } = target;
      await api.write(`${dir}/file`, "old");
      const upload = api.upload();
      await upload.send({ path: `${dir}/file`, chunk: bytesOf("new ") });
      assertEquals(await api.readText(`${dir}/file`), "old");
      await upload.send({ chunk: bytesOf("content") });
      assertEquals(await api.sh('cat "$1/file"', dir), "old");
      upload.end();
      assertEquals(await upload.answer, 11n);
      assertEquals(await api.readText(`${dir}/file`), "new content");
      assertEquals(await tree(target), "./file");
    },
  },
  {
    id: "write.concurrent",
    line:
      "many writers to one path: each reader and the file at last see exactly one writer's content",
    async run(target) {
      const { api, dir } = target;
      const size = 1_000_000;
      await api.write(`${dir}/file`, new Uint8Array(size).fill(1));
      const writers = Array.from(
        { length: 8 },
        (_, index) => api.write(`${dir}/file`, new Uint8Array(size).fill(index + 2)),
      );
      const readers = Array.from({ length: 8 }, () => api.read(`${dir}/file`));
      const contents = [...await Promise.all(readers)];
      assertEquals(await Promise.all(writers), Array.from({ length: 8 }, () => BigInt(size)));
      contents.push(await api.read(`${dir}/file`));
      for (const content of contents) {
        assertEquals(content.length, size);
        assertEquals(new Set(content).size, 1);
      }
      assertEquals(await tree(target), "./file");
    },
  },
  {
    id: "write.parents",
    line: "parents are created, 0755",
    async run({ api, dir }) {
      await api.write(`${dir}/a/b/c/file`, "F", 0o600);
      assertEquals(await api.sh('cd "$1"; stat -c %a a a/b a/b/c', dir), "755\n755\n755");
      // Together, below parents that are not there yet.
      await Promise.all(
        Array.from({ length: 16 }, (_, index) => api.write(`${dir}/x/y/z/${index}`, `${index}`)),
      );
      assertEquals(await api.sh('ls "$1/x/y/z" | wc -l', dir), "16");
    },
  },
  {
    id: "write.link",
    line: "through a symlink inside the workspace: the target is replaced, the link stays",
    async run({ api, dir, root }) {
      await api.write(`${dir}/real/file`, "old");
      await api.sh(
        'cd "$1"; ln -s real/file link; ln -s "$2/$1/link" chain; ln -s real/new dangling',
        dir,
        root,
      );
      await api.write(`${dir}/link`, "new");
      assertEquals(await api.readText(`${dir}/real/file`), "new");
      await api.write(`${dir}/chain`, "newer");
      assertEquals(await api.readText(`${dir}/real/file`), "newer");
      await api.write(`${dir}/dangling`, "made");
      assertEquals(await api.readText(`${dir}/real/new`), "made");
      assertEquals(await api.sh('cd "$1"; readlink link dangling', dir), "real/file\nreal/new");
    },
  },
  {
    id: "write.fsync",
    line: "--fsync true: the same, on the disk itself",
    settings: { flags: ["--fsync", "true"] },
    async run({ api, dir }) {
      const bytes = patternBytes(2_000_000);
      assertEquals(await api.write(`${dir}/a/file`, bytes), 2_000_000n);
      sameBytes(await api.read(`${dir}/a/file`), bytes);
      await rejectsWith(api.write(dir, "x"), status.FAILED_PRECONDITION);
    },
  },
  {
    id: "write.executable-at-once",
    line: "on disk when the answer is sent: a program can be run as soon as it was uploaded",
    async run({ api, dir, root }) {
      for (let round = 0; round < 20; round++) {
        await api.write(`${dir}/tool`, `#!/bin/sh\nexit ${round}\n`, 0o755);
        assertEquals((await api.run([`${root}/${dir}/tool`])).process.exitCode, round);
      }
    },
  },
];

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return `${digest.toHex()}  -`;
}
