// The same behaviour under the permissions of production, as another user, and after a kill -9.
import { assert, assertEquals } from "@std/assert";
import { createStateDir, createTempDir } from "../helpers/state_dir.ts";
import { drive, driverCommand } from "./workspace_driver.ts";
import { canMount, createSandbox, isRoot, listTree, run } from "./workspace_sandbox.ts";

function assertMatch(actual: string, expected: RegExp): void {
  assert(expected.test(actual), `${JSON.stringify(actual)} does not match ${expected}`);
}

Deno.test("scoped permissions, umask 077: everything works, and ways out are refused as such", async () => {
  await using sandbox = await createSandbox();
  const { root, state, outside } = sandbox;
  await Deno.mkdir(`${root}/dir`);
  await Deno.writeTextFile(`${root}/dir/file`, "inside");
  await Deno.symlink("dir/file", `${root}/link`);
  await Deno.symlink("dir", `${root}/dir-link`);
  await Deno.symlink(`${outside}/secret`, `${root}/link-out`);
  await Deno.symlink(outside, `${root}/dir-out`);
  await Deno.symlink(`${outside}/nothing`, `${root}/dangling-out`);
  await run("mkfifo", `${root}/fifo`);
  const refusal = (path: string) =>
    `permission-denied:access denied: path "${path}" is outside sandbox root directory "${root}"`;
  const cases: [Parameters<typeof drive>[0]["steps"][number], string | RegExp][] = [
    [{ op: "selfTest", path: "" }, /^true:/],
    [{ op: "removeStrays", path: "" }, "ok:"],
    [{ op: "read", path: "dir/file" }, "ok:inside"],
    [{ op: "read", path: `${root}/dir-link/../link` }, "ok:inside"],
    [{ op: "write", path: "new", text: "four" }, "ok:4"],
    [{ op: "write", path: "a/b/c", text: "four", mode: 0o4751 }, "ok:4"],
    [{ op: "write", path: "dir-link/x/y", text: "four" }, "ok:4"],
    [{ op: "write", path: "link", text: "replaced" }, "ok:8"],
    [{ op: "read", path: "dir/file" }, "ok:replaced"],
    [{ op: "read", path: "none" }, 'not-found:file "none" not found'],
    [{ op: "read", path: "no/ne" }, 'not-found:file "no/ne" not found'],
    [{ op: "read", path: "fifo" }, /^failed-precondition:/],
    [{ op: "read", path: "dir" }, /^failed-precondition:/],
    [{ op: "read", path: "new/x" }, /^failed-precondition:/],
    ...["link-out", "dir-out/secret", "dir-out/none", "dangling-out", "/etc/passwd", "../outside/x"]
      .flatMap((path): [Parameters<typeof drive>[0]["steps"][number], string][] => [
        [{ op: "read", path }, refusal(path)],
        [{ op: "write", path, text: "x" }, refusal(path)],
      ]),
    [{ op: "write", path: `${state}/tmp/x`, text: "x" }, refusal(`${state}/tmp/x`)],
    [{ op: "read", path: `${state}/proc/self/environ` }, /^permission-denied:/],
  ];
  const outcomes = await drive({ root, state, umask: "077", steps: cases.map(([step]) => step) });
  for (const [index, [step, expected]] of cases.entries()) {
    if (typeof expected === "string") assertEquals(outcomes[index], expected, step.path);
    else assertMatch(outcomes[index]!, expected);
  }
  const modeOf = async (path: string) => (await Deno.stat(`${root}/${path}`)).mode! & 0o7777;
  assertEquals(await modeOf("new"), 0o644);
  assertEquals(await modeOf("a"), 0o755);
  assertEquals(await modeOf("a/b"), 0o755);
  assertEquals(await modeOf("a/b/c"), 0o4751);
  assertEquals(await listTree(outside), ["secret"]);
  assertEquals(await listTree(`${state}/tmp`), []);
});

Deno.test("what Deno's scopes do not hold is a permission error that names the policy", async () => {
  await using sandbox = await createSandbox();
  const { root, state, outside } = sandbox;
  const outcomes = await drive({
    root: "/",
    workspace: root,
    state,
    scopes: [root, state],
    steps: [
      { op: "read", path: `${outside}/secret` },
      { op: "write", path: `${outside}/new`, text: "x" },
    ],
  });
  for (const outcome of outcomes) {
    assertMatch(outcome, /^permission-denied:.*agent's policy \(Deno permission scopes\)$/);
  }
});

/** A user that is not root, with a Deno that it can execute; undefined where there is none. */
async function otherUser(base: string) {
  if (!isRoot) return { uid: Deno.uid()!, deno: Deno.execPath(), env: {} };
  const deno = `${base}/deno`;
  try {
    await Deno.link(await Deno.realPath(Deno.execPath()), deno);
  } catch {
    return undefined;
  }
  await Deno.chmod(base, 0o755);
  await Deno.mkdir(`${base}/cache`);
  await Deno.chown(`${base}/cache`, 65534, 65534);
  const user = { uid: 65534, deno, env: { DENO_DIR: `${base}/cache`, HOME: `${base}/cache` } };
  const source = new URL("../../src/errors.ts", import.meta.url).pathname;
  const { success } = await new Deno.Command("sh", {
    args: ["-c", '"$0" --version && cat "$1"', deno, source],
    uid: 65534,
    gid: 65534,
  }).output();
  return success ? user : undefined;
}

Deno.test("as a user without rights: EACCES and EPERM are permission errors, nothing is left", async () => {
  await using home = await createTempDir();
  const user = await otherUser(home.path);
  if (user === undefined) return console.warn("SKIPPED: no other user can run Deno and read src");
  await using sandbox = await createSandbox();
  const { root, state, base } = sandbox;
  await Deno.chmod(base, 0o755);
  for (const name of ["closed", "unsearchable", "sticky"]) await Deno.mkdir(`${root}/${name}`);
  await Deno.writeTextFile(`${root}/unreadable`, "x");
  await Deno.writeTextFile(`${root}/closed/file`, "old");
  await Deno.writeTextFile(`${root}/unsearchable/file`, "x");
  await Deno.writeTextFile(`${root}/sticky/of-root`, "old");
  await Deno.writeTextFile(`${root}/of-root`, "old");
  await Deno.chmod(`${root}/of-root`, 0o4755);
  if (isRoot) {
    for (const path of [root, state, `${root}/closed`]) await Deno.chown(path, user.uid, user.uid);
    await Deno.chown(`${root}/unreadable`, user.uid, user.uid);
  }
  await Deno.chmod(`${root}/unreadable`, 0o000);
  await Deno.chmod(`${root}/closed`, 0o555);
  await Deno.chmod(`${root}/unsearchable`, 0o600);
  await Deno.chmod(`${root}/sticky`, 0o1777);
  const outcomes = await drive({
    ...user,
    root,
    state,
    steps: [
      { op: "selfTest", path: "" },
      { op: "read", path: "unreadable" },
      { op: "read", path: "unsearchable/file" },
      { op: "write", path: "closed/file", text: "new" },
      { op: "write", path: "closed/new/file", text: "new" },
      { op: "write", path: "unsearchable/file", text: "new" },
      { op: "write", path: "fine", text: "new" },
      { op: "write", path: "unreadable", text: "new" },
      { op: "write", path: "of-root", text: "new" },
      ...(isRoot ? [{ op: "write", path: "sticky/of-root", text: "new" } as const] : []),
    ],
  });
  const text = outcomes.join("\n");
  assertMatch(outcomes[0]!, /^true:/);
  for (const index of [1, 2, 3, 4, 5]) {
    assertMatch(outcomes[index]!, /^permission-denied:cannot .*permission denied \(EACCES\)$/);
  }
  assertEquals(outcomes.slice(6, 9), ["ok:3", "ok:3", "ok:3"], text);
  if (isRoot) {
    assertMatch(outcomes[9]!, /^permission-denied:.*\(EPERM\)$/);
    // The owner could not be kept: then a setuid bit would lend the wrong user's rights.
    const info = await Deno.stat(`${root}/of-root`);
    assertEquals([info.uid, info.mode! & 0o7777], [user.uid, 0o755]);
    assertEquals(await Deno.readTextFile(`${root}/sticky/of-root`), "old");
  }
  for (const path of ["closed", "unsearchable"]) await Deno.chmod(`${root}/${path}`, 0o700);
  assertEquals(await Deno.readTextFile(`${root}/closed/file`), "old");
  assertEquals(await listTree(`${root}/closed`), ["file"]);
  assertEquals(await listTree(`${state}/tmp`), []);
});

Deno.test("a killed agent leaves the old file, and its temporary files go at the next start", async () => {
  await using sandbox = await createSandbox();
  const { root, state, workspace } = sandbox;
  await Deno.writeTextFile(`${root}/file`, "old");
  const volume = `${root}/volume`;
  await Deno.mkdir(volume);
  if (canMount) await run("mount", "-t", "tmpfs", "tmpfs", volume);
  else console.warn("SKIPPED in part: no second mount");
  try {
    for (const path of canMount ? ["file", "volume/file"] : ["file"]) {
      const child = driverCommand({
        root,
        state,
        steps: [{ op: "write", path, text: "new", hang: true }],
      }).spawn();
      const reader = child.stdout.getReader();
      assertEquals(new TextDecoder().decode((await reader.read()).value), "hanging\n");
      child.kill("SIGKILL");
      await reader.cancel();
      await child.stderr.cancel();
      await child.status;
    }
    assertEquals((await listTree(`${state}/tmp`)).length, 1);
    if (canMount) {
      assertEquals((await listTree(volume)).length, 2);
      // What is not the agent's stays, and so do files of other agents on the same volume.
      await Deno.writeTextFile(`${volume}/.ateenv-tmp/deadbeef-other`, "");
      await Deno.writeTextFile(`${volume}/mine`, "");
    }
    await workspace.removeStrays();
    assertEquals(await listTree(`${state}/tmp`), []);
    assertEquals(await Deno.readTextFile(`${root}/file`), "old");
    if (canMount) {
      assertEquals(await listTree(volume), [".ateenv-tmp", ".ateenv-tmp/deadbeef-other", "mine"]);
      assert((await Deno.stat(`${volume}/.ateenv-tmp`)).mode! % 0o1000 === 0o700);
    }
    await workspace.removeStrays();
  } finally {
    if (canMount) await run("umount", volume);
  }
});

Deno.test("notes cannot lead the clean-up anywhere else", async () => {
  await using sandbox = await createSandbox();
  const { root, state, outside, workspace } = sandbox;
  await Deno.mkdir(`${outside}/.ateenv-tmp`);
  await Deno.writeTextFile(`${outside}/.ateenv-tmp/01234567-x`, "keep");
  await Deno.mkdir(`${root}/other`);
  await Deno.writeTextFile(`${root}/other/01234567-x`, "keep");
  await Deno.symlink(`${outside}/.ateenv-tmp`, `${root}/.ateenv-tmp`);
  const prefix = "01234567-";
  const notes = [
    { directory: `${outside}/.ateenv-tmp`, prefix },
    { directory: `${root}/.ateenv-tmp`, prefix },
    { directory: `${root}/other`, prefix },
    { directory: `${root}/../outside/.ateenv-tmp`, prefix },
    { directory: `${root}/.ateenv-tmp`, prefix: "" },
  ].map((note) => JSON.stringify(note)).join("\n") + '\n{"directory": "/torn';
  await Deno.writeTextFile(`${state}/temporary-directories`, notes);
  await workspace.removeStrays();
  assertEquals(await Deno.readTextFile(`${outside}/.ateenv-tmp/01234567-x`), "keep");
  assertEquals(await Deno.readTextFile(`${root}/other/01234567-x`), "keep");
});

Deno.test("without the proc link the self-test says so", async () => {
  await using sandbox = await createSandbox();
  await using state = await createStateDir();
  await Deno.remove(`${state.path}/proc`);
  for (const target of [undefined, sandbox.outside, "/proc/self"]) {
    if (target !== undefined) await Deno.symlink(target, `${state.path}/proc`);
    const [outcome] = await drive({
      root: sandbox.root,
      state: state.path,
      steps: [{ op: "selfTest", path: "" }],
    });
    assertMatch(outcome!, /^false:/);
    if (target !== undefined) await Deno.remove(`${state.path}/proc`);
  }
});

Deno.test("a root that the permissions do not hold fails the self-test", async () => {
  await using sandbox = await createSandbox();
  const { root, state } = sandbox;
  const steps = [{ op: "selfTest", path: "" } as const];
  const [unscoped] = await drive({ root, state, scopes: [state], steps });
  assertMatch(unscoped!, /^false:the agent's policy does not let it open/);
  // Deno opens nothing in /dev without all permissions, whatever the scopes say.
  const [device] = await drive({ root: "/dev/shm", state, steps });
  assertMatch(device!, /^false:the agent's policy does not let it open "\/dev\/shm"/);
});
