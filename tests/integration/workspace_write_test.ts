// WriteFile below gRPC: all or nothing, modes and owners, many writers, aborts at any byte.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../src/errors.ts";
import {
  chunksOf,
  countDescriptors,
  createSandbox,
  isRoot,
  kindOf,
  listTree,
  readBytes,
  readText,
  writeText,
} from "./workspace_sandbox.ts";

const never = new AbortController().signal;

async function modeOf(path: string): Promise<number> {
  return (await Deno.stat(path)).mode! & 0o7777;
}

Deno.test("modes: new and existing files, umask 077", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  const umask = Deno.umask(0o077);
  try {
    for (const mode of [0, 0o600, 0o755, 0o4755, 0o2711, 0o1777, 0o7777, 0o400, 0o001]) {
      const name = `m${mode.toString(8)}`;
      await writeText(workspace, `new/${name}`, "new", mode);
      assertEquals(await modeOf(`${root}/new/${name}`), mode || 0o644, `new ${name}`);
      for (const before of [0o600, 0o755, 0o4755, 0o444]) {
        const path = `${root}/old-${name}-${before.toString(8)}`;
        await Deno.writeTextFile(path, "old");
        await Deno.chmod(path, before);
        await writeText(workspace, path, "new", mode);
        assertEquals(await modeOf(path), mode || before, path);
      }
    }
    await writeText(workspace, "a/b/c/file", "x");
    for (const path of ["a", "a/b", "a/b/c"]) {
      assertEquals(await modeOf(`${root}/${path}`), 0o755, path);
    }
  } finally {
    Deno.umask(umask);
  }
});

Deno.test("a mode beyond 07777 is an invalid argument", async () => {
  await using sandbox = await createSandbox();
  for (const mode of [0o10000, 0o100644, 0xffffffff, -1, 1.5]) {
    assertEquals(
      await kindOf(() => writeText(sandbox.workspace, "file", "x", mode)),
      "invalid-argument",
    );
  }
  assertEquals(await listTree(sandbox.root), []);
});

Deno.test("directories that are there keep their modes", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.mkdir(`${root}/private`);
  await Deno.chmod(`${root}/private`, 0o700);
  await writeText(workspace, "private/below/file", "x");
  assertEquals(await modeOf(`${root}/private`), 0o700);
  assertEquals(await modeOf(`${root}/private/below`), 0o755);
});

Deno.test("the owner of an existing file is kept, with its setuid bit", async () => {
  if (!isRoot) return console.warn("SKIPPED: only root may give files away");
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.writeTextFile(`${root}/file`, "old");
  await Deno.chown(`${root}/file`, 12345, 54321);
  await Deno.chmod(`${root}/file`, 0o6755);
  await writeText(workspace, "file", "new");
  const info = await Deno.stat(`${root}/file`);
  assertEquals([info.uid, info.gid, info.mode! & 0o7777], [12345, 54321, 0o6755]);
  await writeText(workspace, "file", "newer", 0o4711);
  assertEquals((await Deno.stat(`${root}/file`)).uid, 12345);
  assertEquals(await modeOf(`${root}/file`), 0o4711);
});

Deno.test("with a new owner, what is new belongs to it, and what was there to its own", async () => {
  if (!isRoot) return console.warn("SKIPPED: only root may give files away");
  await using sandbox = await createSandbox({ newOwner: { uid: 12345, gid: 54321 } });
  const { workspace, root } = sandbox;
  await Deno.writeTextFile(`${root}/old`, "old");
  await Deno.chown(`${root}/old`, 1, 2);
  await writeText(workspace, "old", "x");
  await writeText(workspace, "made/here/file", "x", 0o4750);
  const owners = async (path: string) => {
    const { uid, gid } = await Deno.stat(`${root}/${path}`);
    return [uid, gid];
  };
  assertEquals(await owners("old"), [1, 2]);
  for (const path of ["made", "made/here", "made/here/file"]) {
    assertEquals(await owners(path), [12345, 54321], path);
  }
  assertEquals(await modeOf(`${root}/made/here/file`), 0o4750);
});

Deno.test("a directory with setgid hands its group and its bit on", async () => {
  if (!isRoot) return console.warn("SKIPPED: only root may choose a group");
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.mkdir(`${root}/shared`);
  await Deno.chown(`${root}/shared`, 0, 54321);
  await Deno.chmod(`${root}/shared`, 0o2775);
  await writeText(workspace, "shared/below/file", "x");
  await writeText(workspace, "shared/file", "x");
  assertEquals((await Deno.stat(`${root}/shared/file`)).gid, 54321);
  assertEquals((await Deno.stat(`${root}/shared/below`)).gid, 54321);
  assertEquals((await Deno.stat(`${root}/shared/below/file`)).gid, 54321);
  assertEquals(await modeOf(`${root}/shared/below`), 0o2755);
  assertEquals(await modeOf(`${root}/shared/file`), 0o644);
});

Deno.test("an upload that is aborted at any byte leaves the old content and nothing else", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, state } = sandbox;
  await Deno.writeTextFile(`${root}/file`, "old");
  await Deno.chmod(`${root}/file`, 0o640);
  const baseline = await countDescriptors(state);
  const kinds = new Set<string>();
  for (let i = 0; i < 200; i++) {
    const controller = new AbortController();
    const total = 3 * 1024 * 1024;
    const abortAt = Math.floor(Math.random() * (total + 1));
    const isError = i % 3 === 0;
    const source = async function* (): AsyncGenerator<Uint8Array> {
      const size = 1 + Math.floor(Math.random() * 400_000);
      for (let sent = 0; sent < total; sent += size) {
        const chunk = new Uint8Array(Math.min(size, total - sent));
        if (sent + chunk.length >= abortAt) {
          if (isError) throw new AgentError("invalid-argument", "the client said something wrong");
          yield chunk.subarray(0, abortAt - sent);
          controller.abort();
          // A source that does not notice: the call must end all the same.
          if (i % 2 === 0) await new Promise(() => {});
          return;
        }
        yield chunk;
      }
      controller.abort();
    };
    const path = i % 4 === 0 ? `made/by/${i}/file` : "file";
    kinds.add(await kindOf(() => workspace.writeFile(path, 0o600, source(), controller.signal)));
    assertEquals(await listTree(root), ["file"]);
    assertEquals(await listTree(`${state}/tmp`), []);
  }
  assertEquals(kinds, new Set(["cancelled", "invalid-argument"]));
  assertEquals(await Deno.readTextFile(`${root}/file`), "old");
  assertEquals(await modeOf(`${root}/file`), 0o640);
  assertEquals(await countDescriptors(state), baseline);
});

Deno.test("a cancel right behind the end of the stream wins", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  const controller = new AbortController();
  async function* source(): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(10);
    // Runs after the end of this stream was seen, as a reset frame that came with it would.
    setImmediate(() => controller.abort());
  }
  assertEquals(
    await kindOf(() => workspace.writeFile("file", 0, source(), controller.signal)),
    "cancelled",
  );
  assertEquals(await listTree(root), []);
});

Deno.test("with many writers each reader sees the content of exactly one", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, state } = sandbox;
  const SIZE = 300_000;
  const writer = async (id: number) => {
    for (let i = 0; i < 15; i++) {
      const half = new Uint8Array(SIZE / 2).fill(id);
      assertEquals(await workspace.writeFile("shared/file", 0, chunksOf(half, half), never), SIZE);
    }
  };
  await workspace.writeFile("shared/file", 0, chunksOf(new Uint8Array(SIZE).fill(9)), never);
  let isWriting = true;
  let reads = 0;
  const reader = async () => {
    do {
      const content = await readBytes(workspace, "shared/file");
      assertEquals(content.length, SIZE);
      const id = content[0]!;
      assert(content.every((byte) => byte === id), "a mix of two writers");
      reads++;
    } while (isWriting);
  };
  const readers = [reader(), reader(), reader()];
  await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(writer));
  isWriting = false;
  await Promise.all(readers);
  assert(reads > 3);
  assertEquals(await listTree(root), ["shared", "shared/file"]);
  assertEquals(await listTree(`${state}/tmp`), []);
});

Deno.test("32 writers below one directory that does not exist all succeed", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Promise.all(
    Array.from({ length: 32 }, (_, i) => writeText(workspace, `a/b/c${i % 4}/f${i}`, `${i}`)),
  );
  assertEquals((await listTree(root)).filter((path) => /f\d+$/.test(path)).length, 32);
});

Deno.test("a directory that goes away during the upload is made again", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.mkdir(`${root}/dir`);
  async function* source(): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(10);
    await Deno.remove(`${root}/dir`);
  }
  await workspace.writeFile("dir/file", 0, source(), never);
  assertEquals((await Deno.stat(`${root}/dir/file`)).size, 10);
});

Deno.test("what takes the target's place during the upload is judged again", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, outside } = sandbox;
  async function* replacing(path: string, make: () => Promise<void>): AsyncGenerator<Uint8Array> {
    yield new TextEncoder().encode("new");
    await Deno.remove(path).catch(() => {});
    await make();
  }
  const path = `${root}/file`;
  const cases: [string, () => Promise<void>, string][] = [
    ["a directory", () => Deno.mkdir(path), "failed-precondition"],
    ["a link out", () => Deno.symlink(`${outside}/secret`, path), "permission-denied"],
    ["a link inside", () => Deno.symlink("other", path), "ok"],
    ["nothing", () => Promise.resolve(), "ok"],
  ];
  for (const [name, make, expected] of cases) {
    const kind = await kindOf(() => workspace.writeFile("file", 0, replacing(path, make), never));
    assertEquals(kind, expected, name);
    await Deno.remove(path);
  }
  assertEquals(await Deno.readTextFile(`${root}/other`), "new");
  assertEquals(await Deno.readTextFile(`${outside}/secret`), "OUTSIDE");
});

Deno.test("a hard link is broken: the other name keeps the old content", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.writeTextFile(`${root}/one`, "old");
  await Deno.link(`${root}/one`, `${root}/two`);
  await writeText(workspace, "one", "new");
  assertEquals(await Deno.readTextFile(`${root}/one`), "new");
  assertEquals(await Deno.readTextFile(`${root}/two`), "old");
});

Deno.test("a program that is being executed can be replaced", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.copyFile("/bin/sleep", `${root}/program`);
  await Deno.chmod(`${root}/program`, 0o755);
  const child = new Deno.Command(`${root}/program`, { args: ["1000"] }).spawn();
  try {
    await writeText(workspace, "program", "#!/bin/sh\n");
    assertEquals(await modeOf(`${root}/program`), 0o755);
  } finally {
    child.kill("SIGKILL");
    await child.status;
  }
});

Deno.test("with fsync, the same happens", async () => {
  await using sandbox = await createSandbox({ fsync: true });
  const { workspace, root, state } = sandbox;
  const baseline = await countDescriptors(state);
  await writeText(workspace, "a/b", "x", 0o600);
  await writeText(workspace, "a/b", "y");
  assertEquals(await readText(workspace, "a/b"), "y");
  assertEquals(await modeOf(`${root}/a/b`), 0o600);
  assertEquals(await countDescriptors(state), baseline);
});

Deno.test("chunks may be empty, and so may the file", async () => {
  await using sandbox = await createSandbox();
  const { workspace } = sandbox;
  assertEquals(await workspace.writeFile("e", 0, chunksOf(), never), 0);
  assertEquals(await workspace.writeFile("f", 0, chunksOf("", "a", "", "b", ""), never), 2);
  assertEquals(await readText(workspace, "e"), "");
  assertEquals(await readText(workspace, "f"), "ab");
});

Deno.test("256 MiB go in and out unchanged, in constant memory", async () => {
  await using sandbox = await createSandbox();
  const { workspace } = sandbox;
  const PIECES = 256;
  const sum = async (source: AsyncIterable<Uint8Array>) => {
    let a = 1;
    let b = 0;
    for await (const piece of source) {
      const words = new Uint32Array(piece.buffer, piece.byteOffset, piece.byteLength >> 2);
      for (let i = 0; i < words.length; i += 16) {
        a = (a + words[i]!) >>> 0;
        b = (b + a) >>> 0;
      }
    }
    return [a, b];
  };
  async function* source(): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < PIECES; i++) {
      const piece = new Uint32Array(256 * 1024);
      for (let j = 0; j < piece.length; j += 16) piece[j] = Math.imul(i * 65536 + j, 2654435761);
      yield new Uint8Array(piece.buffer);
    }
  }
  let peak = 0;
  async function* watched(inner: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const piece of inner) {
      peak = Math.max(peak, Deno.memoryUsage().rss);
      yield piece;
    }
  }
  const before = Deno.memoryUsage().rss;
  const bytes = await workspace.writeFile("big", 0, watched(source()), never);
  assertEquals(bytes, PIECES * 1024 * 1024);
  assertEquals(await sum(watched(workspace.readFile("big", never))), await sum(source()));
  const growth = (peak - before) / 1024 ** 2;
  assert(growth < 160, `${growth.toFixed(0)} MiB`);
});

Deno.test("the end of the workspace cancels uploads, cleans up, and refuses new calls", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, state } = sandbox;
  await Deno.writeTextFile(`${root}/file`, "x");
  let isUnderWay = () => {};
  const underWay = new Promise<void>((resolve) => isUnderWay = resolve);
  async function* endless(): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(10);
    isUnderWay();
    await new Promise(() => {});
  }
  const upload = kindOf(() => workspace.writeFile("new", 0, endless(), never));
  const reader = workspace.readFile("file", never);
  await reader.next();
  await underWay;
  await workspace[Symbol.asyncDispose]();
  assertEquals(await listTree(`${state}/tmp`), []);
  assertEquals(await upload, "cancelled");
  assertEquals(await kindOf(() => reader.next()), "cancelled");
  await assertRejects(() => readText(workspace, "file"), AgentError, "shutting down");
  assertEquals(await kindOf(() => writeText(workspace, "file", "x")), "unavailable");
});
