// Paths of ReadFile and WriteFile: what is meant, and what leads out of the workspace.
import { assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase, Target } from "../contract_case.ts";

const { INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED } = status;

/** That `path` is refused for both calls as leading out, in the contract's words. */
async function leadsOut({ api, root }: Target, path: string) {
  const words = [
    `access denied: path "${path}" is outside sandbox root directory "${root}"`,
  ];
  await rejectsWith(api.read(path), PERMISSION_DENIED, ...words);
  await rejectsWith(api.write(path, "escaped"), PERMISSION_DENIED, ...words);
}

/** Makes a directory outside the workspace with a file in it; gives its path. */
async function outside({ api }: Target): Promise<string> {
  return await api.sh('d=$(mktemp -d /tmp/conformance.XXXXXX); echo secret >$d/file; echo "$d"');
}

/** That nothing in the directory made by `outside` was changed; removes it. */
async function untouched({ api }: Target, path: string): Promise<void> {
  assertEquals(
    await api.sh('cd "$1"; find . | sort; cat file; rm -rf "$1"', path),
    ".\n./file\nsecret",
  );
}

export const filePathCases: readonly ContractCase[] = [
  {
    id: "path.empty",
    line: "INVALID_ARGUMENT `file path cannot be empty`",
    async run({ api }) {
      await rejectsWith(api.read(""), INVALID_ARGUMENT, "file path cannot be empty");
      await rejectsWith(api.write("", "x"), INVALID_ARGUMENT, "file path cannot be empty");
    },
  },
  {
    id: "path.nul",
    line: "INVALID_ARGUMENT: a NUL byte",
    async run({ api, dir }) {
      await rejectsWith(api.read(`${dir}/a\0b`), INVALID_ARGUMENT);
      await rejectsWith(api.write(`${dir}/a\0b`, "x"), INVALID_ARGUMENT);
    },
  },
  {
    id: "path.too-long",
    line: "INVALID_ARGUMENT: too long a name",
    async run({ api, dir }) {
      for (const path of [`${dir}/${"n".repeat(256)}`, `${dir}${"/longer-name".repeat(400)}`]) {
        await rejectsWith(api.read(path), INVALID_ARGUMENT);
        await rejectsWith(api.write(path, "x"), INVALID_ARGUMENT);
      }
      const longest = `${dir}/${"n".repeat(255)}`;
      await api.write(longest, "x");
      assertEquals(await api.readText(longest), "x");
    },
  },
  {
    id: "path.relative-or-absolute",
    line: "absolute, or relative to the workspace",
    async run({ api, dir, root }) {
      await api.write(`${dir}/a`, "A");
      assertEquals(await api.readText(`${root}/${dir}/a`), "A");
      assertEquals(await api.readText(`./${dir}//./a`), "A");
      await api.write(`${root}/${dir}/b`, "B");
      assertEquals(await api.sh('cat "$1/b"', dir), "B");
    },
  },
  {
    id: "path.dots-inside",
    line: "`..` that stays inside is no escape",
    async run({ api, dir }) {
      await api.write(`${dir}/sub/a`, "A");
      assertEquals(await api.readText(`${dir}/sub/../sub/a`), "A");
      await api.write(`${dir}/sub/../b`, "B");
      assertEquals(await api.readText(`${dir}/b`), "B");
    },
  },
  {
    id: "path.odd-names",
    line: "a name is bytes: spaces, quotes, newlines, emoji, leading dashes",
    async run({ api, dir }) {
      for (const name of ["a b", `q"'q`, "n\nl", "🦕", "-rf", "$HOME", "*", "\\", "a:b,c", "..."]) {
        await api.write(`${dir}/${name}`, name);
        assertEquals(await api.readText(`${dir}/${name}`), name);
        assertEquals(await api.sh('cat "$1/$2"', dir, name), name);
      }
    },
  },
  {
    id: "path.dots-outside",
    line: 'PERMISSION_DENIED `access denied: path "<p>" is outside ...` for `..`',
    async run(target) {
      const secret = await outside(target);
      for (const path of ["../x", "..", `../../../../../../../..${secret}/file`]) {
        await leadsOut(target, path);
      }
      await leadsOut(target, `${target.dir}/../../../x`);
      await untouched(target, secret);
    },
  },
  {
    id: "path.absolute-outside",
    line: "... for absolute paths",
    async run(target) {
      const secret = await outside(target);
      for (
        const path of ["/etc/passwd", `${secret}/file`, `${secret}/new`, "/", "/no-such-dir/x"]
      ) {
        await leadsOut(target, path);
      }
      // A sibling whose name begins with the root's.
      await leadsOut(target, `${target.root}-sibling/x`);
      await leadsOut(target, "/proc/self/environ");
      await leadsOut(target, "/dev/null");
      await untouched(target, secret);
    },
  },
  {
    id: "path.link-outside",
    line: "... and symlinks (of the file or any directory on the way) that lead out",
    async run(target) {
      const { api, dir } = target;
      const secret = await outside(target);
      await api.sh(
        `cd "$1"; ln -s "$2/file" to-file; ln -s "$2" to-dir; ln -s to-file chain; ln -s "$2/new" dangling
         mkdir sub; ln -s ../../.. sub/up; ln -s to-dir/file through`,
        dir,
        secret,
      );
      for (const name of ["to-file", "to-dir/file", "chain", "through"]) {
        await leadsOut(target, `${dir}/${name}`);
      }
      for (const name of ["dangling", "to-dir/new", "to-dir/new/er"]) {
        const words = "is outside sandbox root directory";
        await rejectsWith(api.write(`${dir}/${name}`, "x"), PERMISSION_DENIED, words);
      }
      // conformance-x/id/sub/up is the parent of the workspace.
      await rejectsWith(api.write(`${dir}/sub/up/../x`, "x"), PERMISSION_DENIED);
      await untouched(target, secret);
    },
  },
  {
    id: "path.link-inside",
    line: "a symlink that stays inside is followed",
    async run({ api, dir, root }) {
      await api.write(`${dir}/real/a`, "A");
      await api.sh(
        'cd "$1"; ln -s real link; ln -s real/a file; ln -s "$2/$1/real/a" absolute; ln -s file chain',
        dir,
        root,
      );
      for (const name of ["link/a", "file", "absolute", "chain", "link/../real/a"]) {
        assertEquals(await api.readText(`${dir}/${name}`), "A");
      }
      await api.write(`${dir}/link/b`, "B");
      assertEquals(await api.readText(`${dir}/real/b`), "B");
    },
  },
  {
    id: "path.out-and-back",
    line: "a link that leads out is refused even if the rest would come back in",
    async run(target) {
      const { api, dir, root } = target;
      await api.write(`${dir}/a`, "A");
      await api.sh('ln -s / "$1/slash"', dir);
      const path = `${dir}/slash/etc/../no-such-place`;
      await rejectsWith(api.read(path), PERMISSION_DENIED);
      const back = await api.read(`${dir}/slash${root}/${dir}/a`).catch((error) => error.code);
      // Either is right: what is opened lies inside; but a byte of the outside never comes.
      if (back instanceof Uint8Array) assertEquals(new TextDecoder().decode(back), "A");
      else assertEquals(back, PERMISSION_DENIED);
    },
  },
  {
    id: "path.exchanged",
    line:
      "what is checked is what is opened: a component exchanged in between gets no byte out, none in",
    async run(target) {
      const { api, dir } = target;
      const secret = await outside(target);
      await api.write(`${dir}/in/file`, "inside");
      await api.sh('ln -s in "$1/d"', dir);
      const racer = await api.start(["sh", "-c", SWAPPER, "sh", secret], { cwd: dir });
      using turns = api.outputs(racer, { follow: true });
      await turns.until("swapping\n");
      let reads = 0;
      for (let round = 0; round < 300; round++) {
        const read = api.readText(`${dir}/d/file`).then((text) => {
          reads++;
          assertEquals(text, "inside");
        }, () => {});
        const write = api.write(`${dir}/d/new-${round}`, "written").catch(() => {});
        await read;
        await write;
      }
      await api.kill(racer);
      assertEquals(await api.sh('ls "$1"', secret), "file");
      await untouched(target, secret);
      if (reads === 0) throw new Error("not one read succeeded: the race was never run");
    },
  },
  {
    id: "path.missing",
    line: 'missing file (or parent, on read): NOT_FOUND `file "<p>" not found`',
    async run({ api, dir, root }) {
      for (const path of [`${dir}/no`, `${dir}/no/no`, `${root}/${dir}/no`]) {
        await rejectsWith(api.read(path), NOT_FOUND, `file "${path}" not found`);
      }
      await api.sh('ln -s nowhere "$1/dangling"', dir);
      await rejectsWith(api.read(`${dir}/dangling`), NOT_FOUND, `file "${dir}/dangling" not found`);
    },
  },
];

/** Lets `d` lead to a directory inside and to `$1` by turns, each time by one rename. */
const SWAPPER = `
  echo swapping
  while :; do
    ln -s in turn; mv -T turn d
    ln -s "$1" turn; mv -T turn d
  done`;
