// Volumes below the workspace, full and read-only file systems, single files that are mounts.
// Needs the right to mount; without it each test says that it was skipped.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../src/errors.ts";
import {
  canMount,
  chunksOf,
  createSandbox,
  kindOf,
  listTree,
  readText,
  run,
  type Sandbox,
  writeText,
} from "./workspace_sandbox.ts";

const never = new AbortController().signal;

function mountTest(name: string, test: (sandbox: Sandbox) => Promise<void>): void {
  Deno.test(name, async () => {
    if (!canMount) return console.warn(`SKIPPED: may not mount: ${name}`);
    await using sandbox = await createSandbox();
    await test(sandbox);
  });
}

/** Mounts something for as long as the object lives. */
async function mounted(target: string, ...args: string[]): Promise<AsyncDisposable> {
  await run("mount", ...args, target);
  return { [Symbol.asyncDispose]: async () => void await run("umount", target) };
}

mountTest(
  "on another mount the upload grows at that mount's top, and nothing of it stays",
  async (sandbox) => {
    const { workspace, root, state } = sandbox;
    await Deno.mkdir(`${root}/volume`);
    await Deno.mkdir(`${root}/bound`);
    await Deno.mkdir(`${root}/source`);
    await using _tmpfs = await mounted(`${root}/volume`, "-t", "tmpfs", "tmpfs");
    // The same file system, so the same device number: a rename across is refused all the same.
    await using _bind = await mounted(`${root}/bound`, "--bind", `${root}/source`);
    for (const top of ["volume", "bound"]) {
      await Deno.mkdir(`${root}/${top}/a/b`, { recursive: true });
      const source = async function* (): AsyncGenerator<Uint8Array> {
        yield new Uint8Array(10);
        const temporary = `${root}/${top}/.ateenv-tmp`;
        assertEquals((await Deno.lstat(temporary)).mode! & 0o777, 0o700);
        assertEquals((await listTree(temporary)).length, 1);
        assert(!(await listTree(`${root}/${top}`)).includes("new"));
        assertEquals(await listTree(`${state}/tmp`), []);
        yield new Uint8Array(10);
      };
      assertEquals(await workspace.writeFile(`${top}/a/b/file`, 0, source(), never), 20);
      assertEquals(await workspace.writeFile(`${top}/new/c/file`, 0o640, source(), never), 20);
      assertEquals(await listTree(`${root}/${top}`), [
        "a",
        "a/b",
        "a/b/file",
        "new",
        "new/c",
        "new/c/file",
      ]);
      await Promise.all(
        Array.from({ length: 20 }, (_, i) => writeText(workspace, `${top}/many/${i}`, `${i}`)),
      );
      assert(!(await listTree(`${root}/${top}`)).includes(".ateenv-tmp"));
    }
    assertEquals(await listTree(`${root}/source`), await listTree(`${root}/bound`));
  },
);

mountTest(
  "a directory that only looks like the agent's is not used",
  async ({ workspace, root, outside }) => {
    await Deno.mkdir(`${root}/volume`);
    await using _ = await mounted(`${root}/volume`, "-t", "tmpfs", "tmpfs");
    const plant = `${root}/volume/.ateenv-tmp`;
    const cases: [string, () => Promise<void>][] = [
      ["a link out", () => Deno.symlink(outside, plant)],
      ["open to others", () => Deno.mkdir(plant).then(() => Deno.chmod(plant, 0o777))],
      [
        "of another user",
        () => Deno.mkdir(plant, { mode: 0o700 }).then(() => Deno.chown(plant, 1, 1)),
      ],
      ["a file", () => Deno.writeTextFile(plant, "")],
    ];
    for (const [name, make] of cases) {
      await make();
      const error = await assertRejects(
        () => writeText(workspace, "volume/file", "x"),
        AgentError,
        "in the way",
      );
      assertEquals(error.kind, "failed-precondition", name);
      await Deno.remove(plant);
    }
    assertEquals(await listTree(outside), ["secret"]);
  },
);

mountTest(
  "a full disk: RESOURCE_EXHAUSTED, the old file as it was, nothing left",
  async (sandbox) => {
    const { workspace, root } = sandbox;
    await Deno.mkdir(`${root}/volume`);
    await using _ = await mounted(`${root}/volume`, "-t", "tmpfs", "-o", "size=1m", "tmpfs");
    await writeText(workspace, "volume/file", "old");
    const chunk = new Uint8Array(300_000);
    for (const path of ["volume/file", "volume/new/file"]) {
      const error = await assertRejects(
        () => workspace.writeFile(path, 0, chunksOf(...Array(8).fill(chunk)), never),
        AgentError,
        "ENOSPC",
      );
      assertEquals(error.kind, "resource-exhausted");
      assertEquals(await listTree(`${root}/volume`), ["file"]);
    }
    assertEquals(await readText(workspace, "volume/file"), "old");
    // No inodes left: already the temporary file cannot be made.
    await run("mount", "-o", "remount,nr_inodes=3", `${root}/volume`);
    assertEquals(await kindOf(() => writeText(workspace, "volume/new", "x")), "resource-exhausted");
    assertEquals(await listTree(`${root}/volume`), ["file"]);
  },
);

mountTest(
  "a read-only mount: FAILED_PRECONDITION, before any content is taken",
  async (sandbox) => {
    const { workspace, root } = sandbox;
    await Deno.mkdir(`${root}/source`);
    await Deno.mkdir(`${root}/read-only`);
    await Deno.writeTextFile(`${root}/source/file`, "old");
    await using _ = await mounted(`${root}/read-only`, "--bind", `${root}/source`);
    await run("mount", "-o", "remount,bind,ro", `${root}/read-only`);
    let isAsked = false;
    // deno-lint-ignore require-yield
    async function* source(): AsyncGenerator<Uint8Array> {
      isAsked = true;
    }
    for (const path of ["read-only/file", "read-only/new", "read-only/a/b"]) {
      const error = await assertRejects(
        () => workspace.writeFile(path, 0, source(), never),
        AgentError,
        "read-only file system (EROFS)",
      );
      assertEquals(error.kind, "failed-precondition");
    }
    assert(!isAsked);
    assertEquals(await readText(workspace, "read-only/file"), "old");
    assertEquals(await listTree(`${root}/source`), ["file"]);
  },
);

mountTest("a bind-mounted single file is refused with the reason, and stays", async (sandbox) => {
  const { workspace, root, state } = sandbox;
  await Deno.writeTextFile(`${root}/source`, "old");
  await Deno.writeTextFile(`${root}/mounted`, "");
  await using _ = await mounted(`${root}/mounted`, "--bind", `${root}/source`);
  assertEquals(await readText(workspace, "mounted"), "old");
  const error = await assertRejects(
    () => writeText(workspace, "mounted", "new"),
    AgentError,
    "a mount point (such as a bind-mounted single file) cannot be replaced",
  );
  assertEquals(error.kind, "failed-precondition");
  assertEquals(await readText(workspace, "mounted"), "old");
  assertEquals(await listTree(`${state}/tmp`), []);
});

mountTest("an immutable file is a permission error", async ({ workspace, root, state }) => {
  const path = `${root}/immutable`;
  await Deno.writeTextFile(path, "old");
  try {
    await run("chattr", "+i", path);
  } catch {
    return console.warn("SKIPPED: no immutable files here");
  }
  try {
    assertEquals(await kindOf(() => writeText(workspace, "immutable", "new")), "permission-denied");
    assertEquals(await readText(workspace, "immutable"), "old");
    assertEquals(await listTree(`${state}/tmp`), []);
  } finally {
    await run("chattr", "-i", path);
  }
});

mountTest("overlayfs: files of the lower layer are read and replaced", async (sandbox) => {
  const { workspace, root, base } = sandbox;
  // On a tmpfs of its own: an overlay's upper layer cannot lie on another overlay.
  await using _tmpfs = await mountedAt(`${base}/layers`, "-t", "tmpfs", "tmpfs");
  for (const name of ["lower/dir", "upper", "work"]) {
    await Deno.mkdir(`${base}/layers/${name}`, { recursive: true });
  }
  await Deno.writeTextFile(`${base}/layers/lower/dir/file`, "old");
  const layers = `lowerdir=${base}/layers/lower,upperdir=${base}/layers/upper,` +
    `workdir=${base}/layers/work`;
  await Deno.mkdir(`${root}/overlay`);
  let overlay: AsyncDisposable;
  try {
    overlay = await mounted(`${root}/overlay`, "-t", "overlay", "-o", layers, "overlay");
  } catch {
    return console.warn("SKIPPED: no overlayfs here");
  }
  await using _overlay = overlay;
  assertEquals(await readText(workspace, "overlay/dir/file"), "old");
  await writeText(workspace, "overlay/dir/file", "new", 0o600);
  await writeText(workspace, "overlay/dir/a/b/c", "deep");
  assertEquals(await readText(workspace, "overlay/dir/file"), "new");
  assertEquals(await readText(workspace, "overlay/dir/a/b/c"), "deep");
  assertEquals(await Deno.readTextFile(`${base}/layers/lower/dir/file`), "old");
  assertEquals((await listTree(`${root}/overlay`)).length, 5);
});

async function mountedAt(target: string, ...args: string[]): Promise<AsyncDisposable> {
  await Deno.mkdir(target);
  return await mounted(target, ...args);
}

Deno.test("devices and sockets are refused, on read and write, with root /", async () => {
  await using sandbox = await createSandbox({ root: "/" });
  const { workspace, root } = sandbox;
  const listen = 'Deno.listen({ transport: "unix", path: Deno.args[0] }); Deno.exit(0)';
  await run(Deno.execPath(), "eval", listen, `${root}/socket`);
  for (const path of ["/dev/null", "/dev/zero", "/dev/tty", `${root}/socket`]) {
    assertEquals(await kindOf(() => readText(workspace, path)), "failed-precondition", path);
    assertEquals(await kindOf(() => writeText(workspace, path, "x")), "failed-precondition", path);
  }
});

Deno.test("a workspace that was removed: reads find nothing, a write makes it again", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root } = sandbox;
  await Deno.remove(root);
  assertEquals(await kindOf(() => readText(workspace, "file")), "not-found");
  await writeText(workspace, "a/file", "new");
  assertEquals(await Deno.readTextFile(`${root}/a/file`), "new");
});
