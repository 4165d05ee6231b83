// ReadFile below gRPC: pieces, growth, truncation, special files, cancels, descriptors.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../src/errors.ts";
import { MAX_PIECE_BYTES } from "../../src/limits.ts";
import {
  countDescriptors,
  createSandbox,
  kindOf,
  readBytes,
  readText,
  run,
} from "./workspace_sandbox.ts";

const never = new AbortController().signal;

Deno.test("content comes unchanged in pieces of at most MAX_PIECE_BYTES", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  const sizes = [
    0,
    1,
    4095,
    4096,
    4097,
    MAX_PIECE_BYTES - 1,
    MAX_PIECE_BYTES,
    MAX_PIECE_BYTES + 1,
    3 * MAX_PIECE_BYTES,
    5_000_000,
  ];
  for (const size of sizes) {
    const content = new Uint8Array(size);
    for (let i = 0; i < size; i++) content[i] = (i * 31) % 256;
    await Deno.writeFile(`${root}/file`, content);
    const lengths: number[] = [];
    let at = 0;
    for await (const piece of workspace.readFile("file", never)) {
      assert(piece.length > 0 && piece.length <= MAX_PIECE_BYTES);
      for (const byte of piece) if (byte !== content[at++]) throw new Error(`wrong at ${at - 1}`);
      lengths.push(piece.length);
    }
    assertEquals(at, size);
    assertEquals(lengths.length, Math.ceil(size / MAX_PIECE_BYTES), `${size}: ${lengths}`);
  }
});

Deno.test("a file that grows meanwhile is read to its new end", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.writeFile(`${root}/log`, new Uint8Array(3 * MAX_PIECE_BYTES));
  let total = 0;
  let pieces = 0;
  for await (const piece of workspace.readFile("log", never)) {
    total += piece.length;
    if (++pieces <= 2) await Deno.writeFile(`${root}/log`, new Uint8Array(1000), { append: true });
  }
  assertEquals(total, 3 * MAX_PIECE_BYTES + 2000);
});

Deno.test("a file that is truncated meanwhile ends early, without an error", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.writeFile(`${root}/log`, new Uint8Array(8 * MAX_PIECE_BYTES));
  let total = 0;
  for await (const piece of workspace.readFile("log", never)) {
    total += piece.length;
    await Deno.truncate(`${root}/log`, 10);
  }
  assert(total >= MAX_PIECE_BYTES && total <= 3 * MAX_PIECE_BYTES, `${total}`);
});

Deno.test("a file that is replaced or removed meanwhile is read as it was", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.writeFile(`${root}/file`, new Uint8Array(4 * MAX_PIECE_BYTES).fill(1));
  let total = 0;
  for await (const piece of workspace.readFile("file", never)) {
    if (total === 0) await Deno.remove(`${root}/file`);
    for (const byte of piece) total += byte;
  }
  assertEquals(total, 4 * MAX_PIECE_BYTES);
});

Deno.test("a stalled consumer costs two pieces, and not what the file holds", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, state } = sandbox;
  const file = await Deno.create(`${root}/big`);
  await file.truncate(5 * 1024 ** 3);
  file.close();
  const iterator = workspace.readFile("big", never);
  await iterator.next();
  // The kernel's own count of what was read, taken when the read ahead has come to rest.
  const position = async () => {
    const before = await run("cat", `${state}/proc/${Deno.pid}/io`);
    return Number(/rchar: (\d+)/.exec(before)![1]);
  };
  const first = await position();
  await run("true");
  await run("true");
  const second = await position();
  assert(second - first < 4 * MAX_PIECE_BYTES, `${second - first} bytes read while stalled`);
  await iterator.return();
});

Deno.test("64 readers of a FIFO fail at once while normal reads go on", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await run("mkfifo", `${root}/fifo`);
  await Deno.writeTextFile(`${root}/file`, "content");
  const fifos = Array.from({ length: 64 }, () => kindOf(() => readText(workspace, "fifo")));
  const files = Array.from({ length: 16 }, () => readText(workspace, "file"));
  assertEquals(new Set(await Promise.all(fifos)), new Set(["failed-precondition"]));
  assertEquals(new Set(await Promise.all(files)), new Set(["content"]));
});

Deno.test("1,000 cancelled reads leave no descriptor", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, state } = sandbox;
  await Deno.writeFile(`${root}/big`, new Uint8Array(4 * MAX_PIECE_BYTES));
  await readBytes(workspace, "big");
  const baseline = await countDescriptors(state);
  for (let i = 0; i < 1000; i++) {
    const controller = new AbortController();
    const iterator = workspace.readFile("big", controller.signal);
    switch (i % 4) {
      case 0: // Cancelled while the consumer waits.
        {
          const next = iterator.next();
          controller.abort();
          assertEquals(await kindOf(() => next), "cancelled");
        }
        break;
      case 1: // Cancelled while the consumer is busy; it comes back.
        await iterator.next();
        controller.abort();
        assertEquals(await kindOf(() => iterator.next()), "cancelled");
        break;
      case 2: // The consumer leaves.
        await iterator.next();
        await iterator.return();
        break;
      case 3: // Cancelled before the start.
        controller.abort();
        assertEquals(await kindOf(() => iterator.next()), "cancelled");
    }
  }
  assertEquals(await countDescriptors(state), baseline);
});

Deno.test("an aborted read is closed though its consumer never comes back", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, state } = sandbox;
  await Deno.writeFile(`${root}/big`, new Uint8Array(4 * MAX_PIECE_BYTES));
  const baseline = await countDescriptors(state);
  const controller = new AbortController();
  const iterators = [];
  for (let i = 0; i < 20; i++) {
    const iterator = workspace.readFile("big", controller.signal);
    await iterator.next();
    iterators.push(iterator);
  }
  assert(await countDescriptors(state) >= baseline + 20);
  controller.abort();
  // A read in flight ends by itself; another read behind it on the same pool comes after it.
  for (let i = 0; i < 20; i++) await readBytes(workspace, "big");
  assertEquals(await countDescriptors(state), baseline);
});

Deno.test("nothing is opened before the first piece is asked for", async () => {
  await using sandbox = await createSandbox();
  const { workspace, state } = sandbox;
  const baseline = await countDescriptors(state);
  for (let i = 0; i < 10; i++) workspace.readFile("missing", never);
  assertEquals(await countDescriptors(state), baseline);
});

Deno.test("odd names are names", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  const names = [
    "with space",
    "'quoted' \"twice\"",
    "new\nline",
    "tab\tand\rreturn",
    "emoji-🦕-ü-日本語",
    "-rf",
    "--help",
    "...",
    "..x",
    "x (deleted)",
    "$HOME `id` $(id)",
    "*?[a]",
    "back\\slash",
    "\u0001\u007f",
    "\ufffd",
    "é".repeat(127),
    "x".repeat(255),
  ];
  for (const name of names) {
    const path = `${name}/${name}`;
    assertEquals(await workspace.writeFile(path, 0, oneChunk(name), never), byteLength(name));
    assertEquals(await readText(workspace, path), name);
    assertEquals(await Deno.readTextFile(`${root}/${path}`), name);
  }
});

Deno.test("paths as long and as deep as the kernel takes", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  const level = "x".repeat(99) + "/";
  const room = 4095 - root.length - 1;
  const longest = level.repeat(Math.floor(room / 100)) + "f".repeat(room % 100 || 1);
  assertEquals(await workspace.writeFile(longest, 0, oneChunk("longest"), never), 7);
  assertEquals(await readText(workspace, longest), "longest");
  assertEquals(await workspace.writeFile(longest, 0, oneChunk("again"), never), 5);
  for (const path of [longest + "f", level.repeat(40) + "f".repeat(95)]) {
    assertEquals(await kindOf(() => readText(workspace, path)), "invalid-argument");
    assertEquals(
      await kindOf(() => workspace.writeFile(path, 0, oneChunk(""), never)),
      "invalid-argument",
    );
  }
  const deep = "d/".repeat(300);
  assertEquals(await workspace.writeFile(deep + "f", 0, oneChunk("deep"), never), 4);
  assertEquals(await readText(workspace, `${deep}../d/f`), "deep");
  assertEquals(await kindOf(() => readText(workspace, `${deep}d/f`)), "not-found");
});

Deno.test("entries that are not UTF-8 do not disturb; a link into one is refused", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  const made = await new Deno.Command("sh", {
    args: [
      "-c",
      `d=$(printf 'n\\377n'); mkdir "$d" "plain" && echo x > "$d/f" && touch "plain/$d" &&
       ln -s "$d" link && ln -s "$d/f" file-link`,
    ],
    cwd: root,
  }).output();
  assert(made.success);
  await workspace.writeFile("plain/file", 0, oneChunk("ok"), never);
  assertEquals(await readText(workspace, "plain/file"), "ok");
  for (const path of ["link/f", "file-link", "link/new"]) {
    const error = await assertRejects(() => readText(workspace, path), AgentError, "not UTF-8");
    assertEquals(error.kind, "failed-precondition");
    assertEquals(
      await kindOf(() => workspace.writeFile(path, 0, oneChunk("x"), never)),
      "failed-precondition",
    );
  }
});

async function* oneChunk(text: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(text);
}

function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}
