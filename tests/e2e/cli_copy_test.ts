// `ateenv cp`, `cat` and `put` as a person uses them, against the real agent.
import { assert, assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import { packTar } from "modern-tar";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { runInProcess } from "../helpers/cli_app.ts";
import { hasTerminal, openTerminal, runCli, spawnCli } from "../helpers/cli_process.ts";
import { startFaultProxy } from "../helpers/fault_proxy.ts";
import { createTempDir } from "../helpers/state_dir.ts";

const TERMINAL = await hasTerminal();
if (!TERMINAL) console.warn("SKIPPED: the progress bar on a terminal, since there is no script(1)");

const MIB = 1024 * 1024;

/** Everything below a directory: path, kind, mode and content or target. */
async function listing(root: string, below = ""): Promise<string[]> {
  const lines: string[] = [];
  for await (const entry of Deno.readDir(`${root}${below}`)) {
    const path = `${below}/${entry.name}`;
    const { mode } = await Deno.lstat(root + path);
    if (entry.isSymlink) lines.push(`${path} -> ${await Deno.readLink(root + path)}`);
    else if (entry.isFile) {
      const hash = createHash("sha256").update(await Deno.readFile(root + path)).digest("hex");
      lines.push(`${path} ${(mode! & 0o777).toString(8)} ${hash}`);
    } else lines.push(`${path}/ ${(mode! & 0o777).toString(8)}`, ...await listing(root, path));
  }
  return lines.sort();
}

/** Bytes that do not compress or repeat, made fast. */
function noise(count: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(count);
  crypto.getRandomValues(bytes.subarray(0, Math.min(count, 65_536)));
  const words = new Uint32Array(bytes.buffer, 0, Math.floor(count / 4));
  for (let index = 16_384; index < words.length; index++) {
    words[index] = Math.imul(words[index - 16_384]!, 0x9e3779b1) + index;
  }
  return bytes;
}

Deno.test("cp: files both ways, into directories, modes kept, nothing printed in a pipe", async () => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  const options = { address: agent.address, cwd: dir.path };
  const cp = async (from: string, to: string) => {
    const result = await runCli(["cp", from, to], options);
    assertEquals([result.code, result.stdout, result.stderr], [0, "", ""], `${from} ${to}`);
  };
  const content = noise(3 * MIB + 17);
  await Deno.writeFile(`${dir.path}/tool`, content, { mode: 0o751 });
  await Deno.chmod(`${dir.path}/tool`, 0o751);
  await cp("tool", ":bin/tool");
  await cp("./tool", ":new/");
  await Deno.mkdir(`${agent.workspace}/existing`);
  await cp("tool", ":existing");
  for (const path of ["bin/tool", "new/tool", "existing/tool"]) {
    assertEquals(await Deno.readFile(`${agent.workspace}/${path}`), content);
    assertEquals((await Deno.stat(`${agent.workspace}/${path}`)).mode! & 0o7777, 0o751);
  }
  await Deno.mkdir(`${dir.path}/here`);
  await cp(":bin/tool", "copy");
  await cp(`:${agent.workspace}/bin/tool`, "here");
  await cp(":bin/tool", "./here/other");
  for (const path of ["copy", "here/tool", "here/other"]) {
    assertEquals(await Deno.readFile(`${dir.path}/${path}`), content);
    assertEquals((await Deno.stat(`${dir.path}/${path}`)).mode! & 0o7777, 0o751);
  }
  // An option of neither side.
  await Deno.writeTextFile(`${agent.workspace}/-n`, "dash");
  await cp(":-n", "dash");
  assertEquals(await Deno.readTextFile(`${dir.path}/dash`), "dash");
  const json = await runCli(["cp", "--json", ":bin/tool", "copy"], options);
  assertEquals(JSON.parse(json.stdout), { files: 1, bytes: content.length });
});

Deno.test("cp: a link that is replaced stays a link; a device is written to", async () => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  const options = { address: agent.address, cwd: dir.path };
  await Deno.writeTextFile(`${agent.workspace}/f`, "new");
  await Deno.writeTextFile(`${dir.path}/target`, "old");
  await Deno.symlink("target", `${dir.path}/link`);
  assertEquals((await runCli(["cp", ":f", "link"], options)).code, 0);
  assertEquals(await Deno.readLink(`${dir.path}/link`), "target");
  assertEquals(await Deno.readTextFile(`${dir.path}/target`), "new");
  assertEquals((await runCli(["cp", ":f", "/dev/null"], options)).code, 0);
  assertEquals((await Deno.stat("/dev/null")).isCharDevice, true);
});

Deno.test("cp: what cannot be copied leaves no local file, and the old one as it was", async (t) => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  const here = (name: string) => `${dir.path}/${name}`;
  await Deno.writeTextFile(`${dir.path}/old`, "old");
  const before = await listing(dir.path);
  const table: [string, string[], RegExp][] = [
    [
      "missing in the sandbox",
      ["cp", ":nope", here("new")],
      /":nope" does not exist in the sandbox/,
    ],
    ["over an old one", ["cp", ":nope", here("old")], /":nope"/],
    ["missing here", ["cp", here("nope"), ":x"], /nope" does not exist/],
    ["a directory over a file", ["cp", ":.", here("old")], /cannot copy a directory over/],
    ["out of the workspace", ["cp", ":/etc/hostname", here("new")], /outside/],
    ["no parent here", ["cp", ":f", here("no/where")], /no"/],
    ["no colon", ["cp", "a", "b"], /colon/],
    ["two colons", ["cp", ":a", ":b"], /colon/],
    ["cat of nothing", ["cat", "nope"], /"nope" not found/],
    ["put of nothing", ["put", here("nope"), "x"], /nope" does not exist/],
  ];
  await Deno.writeTextFile(`${agent.workspace}/f`, "f");
  for (const [name, args, stderr] of table) {
    await t.step(name, async () => {
      const result = await runInProcess(args, { address: agent.address });
      assertEquals(result.code, 125);
      assert(stderr.test(result.stderr), result.stderr);
      assertEquals(result.stderr.trimEnd().split("\n").length, 1, result.stderr);
      assertEquals(await listing(dir.path), before);
    });
  }
});

Deno.test("cp: directories both ways: a thousand files, modes, links, odd names, empty ones", async () => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  const options = { address: agent.address, cwd: dir.path };
  const tree = `${dir.path}/tree`;
  for (let group = 0; group < 20; group++) {
    await Deno.mkdir(`${tree}/group ${group}/deep`, { recursive: true });
    for (let index = 0; index < 50; index++) {
      const path = `${tree}/group ${group}/${index % 2 === 0 ? "deep/" : ""}file-${index}`;
      await Deno.writeFile(path, noise(index * 37));
    }
  }
  await Deno.mkdir(`${tree}/empty`, { mode: 0o700 });
  await Deno.writeTextFile(`${tree}/-rf`, "option");
  await Deno.writeTextFile(`${tree}/${"x".repeat(200)}`, "long");
  await Deno.writeTextFile(`${tree}/new\nline`, "odd");
  await Deno.chmod(`${tree}/-rf`, 0o755);
  await Deno.symlink("group 1/deep", `${tree}/link`);
  const expected = await listing(tree);

  const up = await runCli(["cp", "--json", "tree", ":up"], options);
  assertEquals([up.code, up.stderr], [0, ""]);
  assertEquals(JSON.parse(up.stdout).files, 1_004);
  assertEquals(await listing(`${agent.workspace}/up`), expected);
  assertEquals(
    (await Array.fromAsync(Deno.readDir(agent.workspace))).map(({ name }) => name),
    ["up"],
  );
  const down = await runCli(["cp", "--json", ":up", "down"], options);
  assertEquals([down.code, down.stderr], [0, ""]);
  assertEquals(JSON.parse(down.stdout).files, 1_004);
  assertEquals(await listing(`${dir.path}/down`), expected);
});

Deno.test("cp: a directory goes into one that exists by its name, with `/.` its content does", async () => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  const cp = async (from: string, to: string) => {
    const result = await runInProcess(["cp", from, to], { address: agent.address });
    assertEquals([result.code, result.stderr], [0, ""]);
  };
  await Deno.mkdir(`${dir.path}/repo/sub`, { recursive: true });
  await Deno.writeTextFile(`${dir.path}/repo/sub/file`, "content");
  await Deno.mkdir(`${dir.path}/here`);
  const expected = await listing(`${dir.path}/repo`);
  await cp(`${dir.path}/repo`, ":repo");
  await cp(`${dir.path}/repo/.`, ":repo");
  assertEquals(await listing(`${agent.workspace}/repo`), expected);
  await cp(`${dir.path}/repo`, ":repo");
  assertEquals(await listing(`${agent.workspace}/repo/repo`), expected);
  await cp(":repo/repo/.", `${dir.path}/here`);
  assertEquals(await listing(`${dir.path}/here`), expected);
  await cp(":repo/repo", `${dir.path}/here`);
  assertEquals(await listing(`${dir.path}/here/repo`), expected);
});

Deno.test("cp: a large file through a proxy that cuts is copied once, with the same hash", async () => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  await using proxy = startFaultProxy(agent.address);
  const options = { address: proxy.address, cwd: dir.path };
  const content = noise(24 * MIB + 1);
  await Deno.writeFile(`${dir.path}/big`, content);
  await Deno.mkdir(`${dir.path}/tree`);
  await Deno.copyFile(`${dir.path}/big`, `${dir.path}/tree/big`);
  for (
    const [from, to, result] of [
      ["big", ":big", `${agent.workspace}/big`],
      [":big", "back", `${dir.path}/back`],
      ["tree", ":tree", `${agent.workspace}/tree/big`],
      [":tree", "tree-back", `${dir.path}/tree-back/big`],
    ] as const
  ) {
    // A read begins anew each time, so there is an end to the cuts.
    proxy.options = { cutAtTotalBytes: [3 * MIB, 9 * MIB, 20 * MIB] };
    const copied = await runCli(["cp", from, to], options);
    assertEquals([copied.code, copied.stderr], [0, ""], `${from} ${to}`);
    const hash = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
    assertEquals(hash(await Deno.readFile(result)), hash(content), `${from} ${to}`);
  }
  assertEquals(proxy.cuts, 12);
});

Deno.test("cp: a hostile tar in the sandbox writes nothing outside", async (t) => {
  await using tools = await createTempDir();
  const evil: [string, Parameters<typeof packTar>[0]][] = [
    ["absolute", [{ header: { name: "/tmp/ateenv-evil", size: 4 }, body: "evil" }]],
    ["climbing", [{ header: { name: "../evil", size: 4 }, body: "evil" }]],
    ["through a link", [
      { header: { name: "link", type: "symlink", linkname: "..", size: 0 } },
      { header: { name: "link/evil", size: 4 }, body: "evil" },
    ]],
    ["a link out", [{ header: { name: "x", type: "symlink", linkname: "/etc", size: 0 } }]],
  ];
  // A `tar` that comes before the real one in the PATH of the sandbox.
  await Deno.writeTextFile(`${tools.path}/tar`, `#!/bin/sh\nexec cat ${tools.path}/archive\n`);
  await Deno.chmod(`${tools.path}/tar`, 0o755);
  await using agent = await startAgentProcess({
    env: { PATH: `${tools.path}:${Deno.env.get("PATH")}` },
  });
  await Deno.mkdir(`${agent.workspace}/d`);
  for (const [name, entries] of evil) {
    await t.step(name, async () => {
      await using dir = await createTempDir();
      await Deno.mkdir(`${dir.path}/in`);
      await Deno.writeFile(`${tools.path}/archive`, await packTar(entries));
      const options = { address: agent.address, cwd: `${dir.path}/in` };
      const result = await runCli(["cp", ":d", "d"], options);
      assertEquals(result.code, 125);
      assert(/^ateenv: refused .*\n$/.test(result.stderr), result.stderr);
      assertEquals(await listing(dir.path), ["/in/ 755"]);
    });
  }
  await t.step("with --skip-links, links out are left out", async () => {
    await using dir = await createTempDir();
    const options = { address: agent.address, cwd: dir.path };
    const result = await runCli(["cp", "--skip-links", ":d", "d"], options);
    assertEquals(result.code, 0);
    assert(result.stderr.includes("1 link"), result.stderr);
    assertEquals((await listing(dir.path)).length, 1);
  });
  await t.step("with --keep-links, links out are links here", async () => {
    await using dir = await createTempDir();
    const options = { address: agent.address, cwd: dir.path };
    const result = await runCli(["cp", "--keep-links", ":d", "d"], options);
    assertEquals([result.code, result.stderr], [0, ""]);
    assertEquals(await Deno.readLink(`${dir.path}/d/x`), "/etc");
  });
  await t.step("garbage and a failing tar", async () => {
    await using dir = await createTempDir();
    const options = { address: agent.address, cwd: dir.path };
    await Deno.writeFile(`${tools.path}/archive`, noise(100_000));
    assertEquals((await runCli(["cp", ":d", "d"], options)).code, 125);
    await Deno.remove(`${tools.path}/archive`);
    const failed = await runCli(["cp", ":d", "d"], options);
    assertEquals(failed.code, 125);
    assert(/tar failed in the sandbox/.test(failed.stderr), failed.stderr);
    assertEquals(await listing(dir.path), []);
  });
});

Deno.test("cp: without processes, single files are copied, and it says so", async () => {
  await using agent = await startAgentProcess({ flags: ["--enable-process", "false"] });
  await using dir = await createTempDir();
  const cp = (from: string, to: string) =>
    runInProcess(["cp", from, to], { address: agent.address });
  await Deno.writeTextFile(`${dir.path}/f`, "content");
  const up = await cp(`${dir.path}/f`, ":g");
  assertEquals(up.code, 0);
  assert(/single file/.test(up.stderr), up.stderr);
  const down = await cp(":g", `${dir.path}/back`);
  assertEquals(down.code, 0);
  assert(/single file/.test(down.stderr), down.stderr);
  assertEquals(await Deno.readTextFile(`${dir.path}/back`), "content");
  await Deno.mkdir(`${dir.path}/d`);
  const directory = await cp(`${dir.path}/d`, ":d");
  assertEquals(directory.code, 125);
  assert(/cannot copy directories.*one by one/.test(directory.stderr), directory.stderr);
});

Deno.test("put and cat: stdin to a file and back, byte for byte", async () => {
  await using agent = await startAgentProcess();
  const { address } = agent;
  const content = noise(2 * MIB + 3);
  const put = await runCli(["put", "--mode", "640", "-", ":a/b"], { address, stdin: content });
  assertEquals([put.code, put.stdout, put.stderr], [0, "", ""]);
  assertEquals((await Deno.stat(`${agent.workspace}/a/b`)).mode! & 0o7777, 0o640);
  const cat = await runCli(["cat", ":a/b", "a/b"], { address });
  assertEquals(cat.code, 0);
  assertEquals(cat.stdoutBytes, new Uint8Array([...content, ...content]));
  const empty = await runCli(["put", "--json", "-", "empty"], { address });
  assertEquals(JSON.parse(empty.stdout), { path: "empty", bytes: 0 });
});

async function peakMib(pid: number): Promise<number> {
  const { stdout } = await new Deno.Command("cat", { args: [`/proc/${pid}/status`] }).output();
  return Number(/VmHWM:\s+(\d+)/.exec(new TextDecoder().decode(stdout))![1]) / 1024;
}

// Promise.race() of each message against the answer once kept all of them.
Deno.test("put does not hold what it has sent", async () => {
  await using agent = await startAgentProcess();
  const child = spawnCli(["put", "-", "big"], { address: agent.address });
  const writer = child.stdin.getWriter();
  const chunk = new Uint8Array(MIB);
  for (let count = 0; count < 256; count++) await writer.write(chunk);
  const peak = await peakMib(child.pid);
  await writer.close();
  assertEquals((await child.status).code, 0);
  assertEquals((await Deno.stat(`${agent.workspace}/big`)).size, 256 * MIB);
  assert(peak < 320, `peak RSS ${peak} MiB`);
  await child.stdout.cancel();
  await child.stderr.cancel();
});

Deno.test("cat into a reader that stalls holds little memory", async () => {
  await using agent = await startAgentProcess();
  {
    using file = await Deno.create(`${agent.workspace}/big`);
    await file.truncate(1024 * MIB);
  }
  const child = spawnCli(["cat", "big"], { address: agent.address });
  const reader = child.stdout.getReader();
  for (let bytes = 0; bytes < 256 * MIB;) bytes += (await reader.read()).value!.length;
  const peak = await peakMib(child.pid);
  assert(peak < 320, `peak RSS ${peak} MiB`);
  child.kill("SIGKILL");
  await child.status;
  await reader.cancel();
  await child.stderr.cancel();
  await child.stdin.close();
});

Deno.test({
  name: "cp: a progress bar on a terminal, with bytes, rate and time left",
  ignore: !TERMINAL,
  async fn() {
    await using agent = await startAgentProcess();
    await using dir = await createTempDir();
    const options = { address: agent.address, cwd: dir.path };
    await Deno.writeFile(`${dir.path}/big`, noise(8 * MIB));
    const up = openTerminal("ateenv cp big :big", options);
    assertEquals(await up.ended, 0);
    assert(/big {2}\[#{24}\] 100% {2}8\.0 MiB of 8\.0 MiB .*\/s .*left/.test(up.screen), up.screen);
    await Deno.mkdir(`${agent.workspace}/d`);
    await Deno.rename(`${agent.workspace}/big`, `${agent.workspace}/d/big`);
    const down = openTerminal("ateenv cp :d d", options);
    assertEquals(await down.ended, 0);
    assert(/d {2}\[#+-*\].*MiB\/s/.test(down.screen), down.screen);
  },
});

Deno.test({
  name: "cp: Ctrl-C leaves nothing on either side",
  ignore: !TERMINAL,
  async fn() {
    await using agent = await startAgentProcess();
    await using dir = await createTempDir();
    const options = { address: agent.address, cwd: dir.path };
    await Deno.mkdir(`${dir.path}/tree`);
    for (const path of [`${dir.path}/tree/big`, `${agent.workspace}/big`]) {
      using file = await Deno.create(path);
      await file.truncate(4_096 * MIB);
    }
    for (const command of ["ateenv cp :big big", "ateenv cp tree :tree"]) {
      const terminal = openTerminal(command, options);
      await terminal.waitText("MiB of 4.0 GiB");
      await terminal.type("\x03");
      assertEquals(await terminal.ended, 130, terminal.screen);
    }
    const names = async (path: string) =>
      (await Array.fromAsync(Deno.readDir(path))).map(({ name }) => name);
    assertEquals(await names(dir.path), ["tree"]);
    assertEquals(await names(agent.workspace), ["big"]);
  },
});
