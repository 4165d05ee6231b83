// Ways out of the sandbox root, tried against reading and writing: no byte comes out, none goes in.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../src/errors.ts";
import {
  createSandbox,
  kindOf,
  listTree,
  readText,
  type Sandbox,
  SECRET,
  writeText,
} from "./workspace_sandbox.ts";

/** Plants links in the root, inside and outside ones. */
async function plantLinks({ root, outside }: Sandbox): Promise<void> {
  await Deno.mkdir(`${root}/dir/deep`, { recursive: true });
  await Deno.mkdir(`${outside}/dir`);
  await Deno.writeTextFile(`${root}/dir/file`, "inside");
  const links: [string, string][] = [
    ["to-file", `${outside}/secret`],
    ["to-dir", outside],
    ["relative-out", "../outside"],
    ["chain-1", "chain-2"],
    ["chain-2", `${root}/chain-3`],
    ["chain-3", "../outside/secret"],
    ["dir-chain", "to-dir/dir"],
    ["dangling-out", `${outside}/nothing`],
    ["dangling-dir-out", `${outside}/no/such/dir`],
    ["to-root", "/"],
    ["to-self", `${root}`],
    ["dir/up", ".."],
    ["dir/deep/up-up", "../../.."],
    ["to-proc", "/proc/self/root"],
  ];
  for (const [name, target] of links) await Deno.symlink(target, `${root}/${name}`);
}

Deno.test("every way out is refused alike for read and write, and nothing outside changes", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, outside } = sandbox;
  await plantLinks(sandbox);
  const paths = [
    "/etc/passwd",
    "/etc/no-such-file",
    "/no-such-directory/x",
    `${outside}/secret`,
    `${outside}/nothing`,
    "../outside/secret",
    "../outside/nothing",
    "../nowhere/nothing",
    "../../../../../../../../etc/passwd",
    "no-such/../../outside/secret",
    "no-such/../../outside/nothing",
    "dir/../../outside/secret",
    "./../outside/secret",
    "..//outside///secret",
    `${root}/../outside/secret`,
    `${root}x/secret`,
    "to-file",
    "to-dir/secret",
    "to-dir/nothing",
    "to-dir/dir/nothing",
    "to-dir/no/such/dir/x",
    "to-dir/../outside/secret",
    "to-dir/../../etc/passwd",
    "relative-out/secret",
    "chain-1",
    "dir-chain/new",
    "dangling-out",
    "dangling-dir-out",
    "dangling-dir-out/x",
    "to-root/etc/passwd",
    "to-root/tmp/x",
    "to-self/to-file",
    "dir/up/to-file",
    "dir/deep/up-up/outside/secret",
    "dir/deep/up-up/outside/new",
    "to-proc/etc/passwd",
    "..",
    "../",
    "/",
    "to-dir",
    "to-dir/",
    "to-dir/dir/..",
  ];
  const before = await listTree(outside);
  for (const path of paths) {
    for (
      const action of [
        () => readText(workspace, path),
        () => writeText(workspace, path, "planted"),
      ]
    ) {
      const error = await assertRejects(action, AgentError, undefined, path);
      assertEquals(error.kind, "permission-denied", `${path}: ${error.message}`);
      assertEquals(
        error.message,
        `access denied: path "${path}" is outside sandbox root directory "${root}"`,
      );
    }
  }
  assertEquals(await listTree(outside), before);
  assertEquals(await Deno.readTextFile(`${outside}/secret`), SECRET);
});

Deno.test("links and double dots that stay inside are followed as the kernel does", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await plantLinks(sandbox);
  await Deno.symlink("dir/deep", `${root}/to-deep`);
  await Deno.writeTextFile(`${root}/top`, "top");
  for (
    const [path, content] of [
      ["to-self/dir/file", "inside"],
      ["dir/up/dir/up/top", "top"],
      ["dir/deep/up-up/ws/top", "top"], // Through the directory above the root, by name only.
      ["../ws/top", "top"],
      [`${root}/dir/../top`, "top"],
      ["to-deep/../file", "inside"], // Above the target, not above the link.
      ["./dir//file", "inside"],
      ["to-self/to-self/to-self/top", "top"],
      ["no-such/../top", undefined], // The kernel wants it to exist.
    ] as const
  ) {
    if (content === undefined) {
      assertEquals(await kindOf(() => readText(workspace, path)), "not-found");
    } else assertEquals(await readText(workspace, path), content, path);
  }
});

Deno.test("a write through a link inside replaces the target and leaves the link", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await plantLinks(sandbox);
  await Deno.symlink("dir/file", `${root}/link`);
  await Deno.symlink("link", `${root}/link-link`);
  await Deno.symlink("dir/new", `${root}/dangling`);
  await Deno.symlink("made/by/link", `${root}/dangling-deep`);
  await writeText(workspace, "link-link", "new");
  assertEquals(await Deno.readTextFile(`${root}/dir/file`), "new");
  await writeText(workspace, "dangling", "target");
  assertEquals(await Deno.readTextFile(`${root}/dir/new`), "target");
  await writeText(workspace, "dangling-deep", "deep");
  assertEquals(await Deno.readTextFile(`${root}/made/by/link`), "deep");
  for (const name of ["link", "link-link", "dangling", "dangling-deep"]) {
    assert((await Deno.lstat(`${root}/${name}`)).isSymlink, name);
  }
});

Deno.test("40 links are followed, 41 and loops are a failed precondition", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.writeTextFile(`${root}/l0`, "end");
  for (let i = 1; i <= 41; i++) await Deno.symlink(`l${i - 1}`, `${root}/l${i}`);
  await Deno.symlink("loop-b", `${root}/loop-a`);
  await Deno.symlink("loop-a", `${root}/loop-b`);
  assertEquals(await readText(workspace, "l40"), "end");
  for (const path of ["l41", "loop-a", "loop-a/x"]) {
    assertEquals(await kindOf(() => readText(workspace, path)), "failed-precondition", path);
    assertEquals(await kindOf(() => writeText(workspace, path, "")), "failed-precondition", path);
  }
});

Deno.test("read paths can be read, by name and by link, and not written", async () => {
  await using outer = await createSandbox();
  await using sandbox = await createSandbox({ readPaths: [outer.outside] });
  const { workspace, root } = sandbox;
  await Deno.symlink(outer.outside, `${root}/docs`);
  await Deno.symlink(`${outer.base}/ws`, `${outer.outside}/out`);
  assertEquals(await readText(workspace, `${outer.outside}/secret`), SECRET);
  assertEquals(await readText(workspace, "docs/secret"), SECRET);
  assertEquals(await kindOf(() => readText(workspace, "docs/none")), "not-found");
  for (const path of [`${outer.outside}/secret`, "docs/secret", "docs/new"]) {
    assertEquals(await kindOf(() => writeText(workspace, path, "x")), "permission-denied", path);
  }
  assertEquals(await kindOf(() => readText(workspace, "docs/out/x")), "permission-denied");
  assertEquals(await Deno.readTextFile(`${outer.outside}/secret`), SECRET);
});

Deno.test("with root / all is open but what is the agent's own, under whatever name", async () => {
  await using secrets = await createSandbox();
  const token = `${secrets.outside}/secret`;
  await using sandbox = await createSandbox({ root: "/", forbidden: [token] });
  const { workspace, root, state, outside } = sandbox;
  await Deno.writeTextFile(`${state}/tmp-file`, "state");
  await Deno.symlink(token, `${root}/link`);
  await Deno.symlink(secrets.outside, `${root}/dir-link`);
  await Deno.symlink(state, `${root}/state-link`);
  await Deno.link(token, `${root}/hard-link`);
  // As Kubernetes mounts a secret: the configured name is itself a link.
  await Deno.mkdir(`${outside}/..data`);
  await Deno.writeTextFile(`${outside}/..data/real`, "linked token");
  await Deno.symlink("..data/real", `${outside}/token`);
  const linkedToken = `${outside}/token`;
  await using linked = await createSandbox({ root: "/", forbidden: [linkedToken] });

  assertEquals(await readText(workspace, `${outside}/secret`), SECRET);
  await writeText(workspace, `${outside}/secret`, "changed");
  assertEquals(await Deno.readTextFile(`${outside}/secret`), "changed");
  const hidden: [Sandbox, string][] = [
    [sandbox, token],
    [sandbox, `${root}/link`],
    [sandbox, "dir-link/secret"],
    [sandbox, `${root}/../../..${token}`],
    [sandbox, "hard-link"],
    [sandbox, `${state}/tmp-file`],
    [sandbox, `${state}/new`],
    [sandbox, `${state}/tmp/new`],
    [sandbox, `${state}/proc/self/environ`],
    [sandbox, "state-link/tmp-file"],
    [sandbox, state],
    [linked, linkedToken],
    [linked, `${outside}/..data/real`],
  ];
  for (const [{ workspace }, path] of hidden) {
    assertEquals(await kindOf(() => readText(workspace, path)), "permission-denied", path);
    assertEquals(await kindOf(() => writeText(workspace, path, "x")), "permission-denied", path);
  }
  assertEquals(await Deno.readTextFile(token), SECRET);
  assertEquals(await Deno.readTextFile(`${outside}/..data/real`), "linked token");
  assertEquals(await Deno.readTextFile(`${state}/tmp-file`), "state");
});
