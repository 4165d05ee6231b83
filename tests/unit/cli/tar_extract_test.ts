// What a hostile archive can do to the local side: nothing.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { packTar, type TarEntry } from "modern-tar";
import { CliError } from "../../../src/cli/failure.ts";
import { extractTar } from "../../../src/cli/tar_extract.ts";
import { packDirectory } from "../../../src/cli/tar_pack.ts";
import { createTempDir } from "../../helpers/state_dir.ts";

const STRICT = { linksOut: "refuse" } as const;

type Entry = [
  name: string,
  type: "file" | "directory" | "symlink" | "link" | "fifo",
  text?: string,
];

async function archiveOf(entries: readonly Entry[]): Promise<ReadableStream<Uint8Array>> {
  const packed = await packTar(entries.map(([name, type, text = ""]): TarEntry => ({
    header: type === "file"
      ? { name, type, size: new TextEncoder().encode(text).length, mode: 0o644 }
      : { name, type, size: 0, linkname: text, mode: 0o755 },
    ...(type === "file" ? { body: text } : {}),
  })));
  return ReadableStream.from([packed]);
}

/** Everything below a directory, as lines. */
async function listing(root: string, below = ""): Promise<string[]> {
  const lines: string[] = [];
  for await (const entry of Deno.readDir(`${root}${below}`)) {
    const path = `${below}/${entry.name}`;
    if (entry.isSymlink) lines.push(`${path} -> ${await Deno.readLink(root + path)}`);
    else if (entry.isFile) lines.push(`${path} = ${await Deno.readTextFile(root + path)}`);
    else lines.push(`${path}/`, ...await listing(root, path));
  }
  return lines.sort();
}

const HOSTILE: Readonly<Record<string, readonly Entry[]>> = {
  "an absolute name": [["/etc/evil", "file", "x"]],
  "a name with ..": [["../evil", "file", "x"]],
  "a name with .. inside": [["a/../../evil", "file", "x"]],
  "a directory with ..": [["../evil/", "directory"]],
  "a link out, absolute": [["link", "symlink", "/etc"]],
  "a link out, relative": [["link", "symlink", "../outside"]],
  "a link out, deep": [["a/b/link", "symlink", "../../../outside"]],
  "a link that climbs after going down": [["link", "symlink", "a/../../outside"]],
  "an empty link": [["link", "symlink", ""]],
  "a file through a link": [["link", "symlink", "sub"], ["link/file", "file", "x"]],
  "a file through a link out": [["link", "symlink", "../outside"], ["link/evil", "file", "x"]],
  "a directory over a link": [["link", "symlink", "sub"], ["link/", "directory"]],
  "links that climb together": [
    ["a/b/", "directory"],
    ["a/up", "symlink", ".."],
    ["out", "symlink", "a/up/../outside"],
  ],
  "a hard link out": [["link", "link", "/etc/passwd"]],
  "a hard link with ..": [["link", "link", "../outside/secret"]],
  "a hard link to a symbolic one": [["s", "symlink", "t"], ["link", "link", "s"]],
  "a hard link through a symbolic one": [["s", "symlink", "t"], ["link", "link", "s/file"]],
  "a file below a file": [["a", "file", "x"], ["a/b", "file", "x"]],
  "a file that is a directory": [["a/", "directory"], ["a", "file", "x"]],
  "a link that is a file": [["a", "file", "x"], ["a", "symlink", "b"]],
  "a file for the directory itself": [[".", "file", "x"]],
};

for (const [what, entries] of Object.entries(HOSTILE)) {
  for (const isMerge of [false, true]) {
    Deno.test(`refused, and nothing is touched: ${what}${isMerge ? ", merged" : ""}`, async () => {
      await using dir = await createTempDir();
      await Deno.mkdir(`${dir.path}/outside`);
      await Deno.writeTextFile(`${dir.path}/outside/secret`, "secret");
      if (isMerge) {
        await Deno.mkdir(`${dir.path}/to`);
        await Deno.writeTextFile(`${dir.path}/to/mine`, "mine");
      }
      const before = await listing(dir.path);
      const archive = await archiveOf([["good", "file", "good"], ...entries]);
      await assertRejects(
        () => extractTar(archive, `${dir.path}/to`, STRICT),
        CliError,
        "refused",
      );
      assertEquals(await listing(dir.path), before);
    });
  }
}

Deno.test("links inside stay, also to directories above and to nothing", async () => {
  await using dir = await createTempDir();
  await extractTar(
    await archiveOf([
      ["a/b/", "directory"],
      ["a/file", "file", "x"],
      ["a/b/up", "symlink", "../file"],
      ["a/b/root", "symlink", "../.."],
      ["dangling", "symlink", "a/nothing"],
      ["hard", "link", "a/file"],
    ]),
    `${dir.path}/to`,
    STRICT,
  );
  assertEquals(await listing(`${dir.path}/to`), [
    "/a/",
    "/a/b/",
    "/a/b/root -> ../..",
    "/a/b/up -> ../file",
    "/a/file = x",
    "/dangling -> a/nothing",
    "/hard = x",
  ]);
});

Deno.test("links out are left out on request, and counted", async () => {
  await using dir = await createTempDir();
  const result = await extractTar(
    await archiveOf([["python", "symlink", "/usr/bin/python3"], ["a", "file", "x"]]),
    `${dir.path}/to`,
    { linksOut: "skip" },
  );
  assertEquals(result, { files: 1, special: 0, linksOut: 1 });
  assertEquals(await listing(`${dir.path}/to`), ["/a = x"]);
});

Deno.test("links out are kept on request, as links, and nothing goes through them", async () => {
  await using dir = await createTempDir();
  await Deno.mkdir(`${dir.path}/outside`);
  await Deno.writeTextFile(`${dir.path}/outside/secret`, "secret");
  const links: Entry[] = [
    ["python", "symlink", "/usr/bin/python3"],
    ["out", "symlink", "../outside"],
    ["a", "file", "x"],
  ];
  const extract = async (entries: readonly Entry[], to = "to") =>
    await extractTar(await archiveOf(entries), `${dir.path}/${to}`, { linksOut: "keep" });
  const expected = ["/a = x", "/out -> ../outside", "/python -> /usr/bin/python3"];
  // Once more into what is there: a link is replaced, not followed.
  for (let times = 0; times < 2; times++) {
    assertEquals(await extract(links), { files: 3, special: 0, linksOut: 0 });
    assertEquals(await listing(`${dir.path}/to`), expected);
  }
  // Through a link that an earlier copy has left.
  await assertRejects(() => extract([["out/", "directory"], ["out/evil", "file", "x"]]), CliError);
  for (const [what, entries] of Object.entries(HOSTILE)) {
    await extract(entries, what.replaceAll(" ", "-")).catch((error) => {
      if (!(error instanceof CliError)) throw error;
    });
    assertEquals(await listing(`${dir.path}/outside`), ["/secret = secret"], what);
  }
  const names = (await Array.fromAsync(Deno.readDir(dir.path))).map(({ name }) => name);
  assert(!names.includes("evil"));
});

Deno.test("pipes and devices are left out, and counted", async () => {
  await using dir = await createTempDir();
  const result = await extractTar(
    await archiveOf([["pipe", "fifo"], ["a", "file", "x"]]),
    `${dir.path}/to`,
    STRICT,
  );
  assertEquals(result, { files: 1, special: 1, linksOut: 0 });
});

Deno.test("a later entry replaces an earlier one, without touching its hard links", async () => {
  await using dir = await createTempDir();
  await extractTar(
    await archiveOf([["a", "file", "old"], ["b", "link", "a"], ["a", "file", "new"]]),
    `${dir.path}/to`,
    STRICT,
  );
  assertEquals(await listing(`${dir.path}/to`), ["/a = new", "/b = old"]);
});

Deno.test("merging replaces files and keeps the rest", async () => {
  await using dir = await createTempDir();
  const to = `${dir.path}/to`;
  await Deno.mkdir(`${to}/sub`, { recursive: true });
  await Deno.writeTextFile(`${to}/sub/mine`, "mine");
  await Deno.writeTextFile(`${to}/sub/both`, "old");
  await extractTar(
    await archiveOf([["sub/both", "file", "new"], ["sub/new/x", "file", "x"]]),
    to,
    STRICT,
  );
  assertEquals(await listing(to), [
    "/sub/",
    "/sub/both = new",
    "/sub/mine = mine",
    "/sub/new/",
    "/sub/new/x = x",
  ]);
});

Deno.test("merging never goes through a local link, and never swaps a file for a directory", async () => {
  await using dir = await createTempDir();
  const to = `${dir.path}/to`;
  await Deno.mkdir(`${dir.path}/outside`);
  await Deno.mkdir(to);
  await Deno.symlink("../outside", `${to}/link`);
  await Deno.writeTextFile(`${to}/file`, "mine");
  await Deno.mkdir(`${to}/directory`);
  const before = await listing(dir.path);
  for (
    const entries of [
      [["link/evil", "file", "x"]],
      [["file/evil", "file", "x"]],
      [["directory", "file", "x"]],
      [["new", "file", "x"], ["link/evil", "file", "x"]],
    ] as Entry[][]
  ) {
    const archive = await archiveOf(entries);
    await assertRejects(() => extractTar(archive, to, STRICT), CliError, "cannot copy");
    assertEquals(await listing(dir.path), before);
  }
});

Deno.test("an archive that is cut or damaged leaves nothing", async () => {
  await using dir = await createTempDir();
  const whole = new Uint8Array(
    await new Response(
      await archiveOf([["a", "file", "x".repeat(5_000)], ["b", "file", "y"]]),
    ).arrayBuffer(),
  );
  const damaged = whole.slice();
  damaged[0]! ^= 1;
  for (const bytes of [whole.slice(0, 700), whole.slice(0, 6_000), damaged, new Uint8Array(99)]) {
    await assertRejects(
      () => extractTar(ReadableStream.from([bytes]), `${dir.path}/to`, STRICT),
      Error,
    );
    assertEquals(await listing(dir.path), []);
  }
});

Deno.test("what is packed comes out as it was: modes, times, links, empty things, long names", async () => {
  await using dir = await createTempDir();
  const from = `${dir.path}/from`;
  const long = "n".repeat(120);
  await Deno.mkdir(`${from}/empty`, { recursive: true });
  await Deno.mkdir(`${from}/${long}/${long}`, { recursive: true });
  await Deno.writeTextFile(`${from}/${long}/${long}/${long}`, "deep");
  await Deno.writeTextFile(`${from}/grüße 😀`, "unicode");
  await Deno.writeTextFile(`${from}/nothing`, "");
  await Deno.writeTextFile(`${from}/run.sh`, "#!/bin/sh\n");
  await Deno.chmod(`${from}/run.sh`, 0o750);
  await Deno.chmod(`${from}/empty`, 0o500 | 0o200);
  await Deno.symlink("run.sh", `${from}/link`);
  await Deno.utime(`${from}/run.sh`, 1_000_000_000, 1_000_000_000);
  let bytes = 0;
  const archive = packDirectory(from, (count) => void (bytes += count));
  const result = await extractTar(archive, `${dir.path}/to`, STRICT);
  assertEquals(await listing(`${dir.path}/to`), await listing(from));
  assertEquals(result.files, 5);
  assertEquals(bytes, "deep".length + "unicode".length + "#!/bin/sh\n".length);
  const info = await Deno.stat(`${dir.path}/to/run.sh`);
  assertEquals([info.mode! & 0o7777, info.mtime!.getTime()], [0o750, 1_000_000_000_000]);
  assertEquals((await Deno.stat(`${dir.path}/to/empty`)).mode! & 0o7777, 0o700);
});

Deno.test("setuid does not come out of a sandbox", async () => {
  await using dir = await createTempDir();
  const packed = await packTar([
    { header: { name: "su", type: "file", size: 1, mode: 0o6755 }, body: "x" },
    { header: { name: "d/", type: "directory", size: 0, mode: 0o7777 } },
  ]);
  await extractTar(ReadableStream.from([packed]), `${dir.path}/to`, STRICT);
  assertEquals((await Deno.stat(`${dir.path}/to/su`)).mode! & 0o7777, 0o755);
  assertEquals((await Deno.stat(`${dir.path}/to/d`)).mode! & 0o7777, 0o777);
});

Deno.test("a file that becomes shorter while it is packed fails the copy", async () => {
  await using dir = await createTempDir();
  const from = `${dir.path}/from`;
  await Deno.mkdir(from);
  await Deno.writeFile(`${from}/log`, new Uint8Array(2_000_000));
  let isShort = false;
  const archive = packDirectory(from, () => {
    if (!isShort) Deno.truncateSync(`${from}/log`, 0);
    isShort = true;
  });
  await assertRejects(
    () => extractTar(archive, `${dir.path}/to`, STRICT),
    CliError,
    "became shorter",
  );
  assert(isShort);
});
