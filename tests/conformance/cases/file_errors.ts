// The table of file errors: each code caused for real.
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { startAgentProcess } from "../../helpers/agent_process.ts";
import { createTempDir } from "../../helpers/state_dir.ts";
import type { ContractCase } from "../contract_case.ts";

const { FAILED_PRECONDITION, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED } = status;

/** Text for `before`: a mount namespace of its own, in which more is mounted below the workspace. */
function mounted(...commands: string[]): string {
  const text = [WORKSPACE_OF_ARGS, ...commands, 'exec "$@"'].join(" && ");
  return `exec unshare -m sh -c '${text}' sh "$@"`;
}

/** Mounts need a privilege that not every machine gives. */
const canMount = await new Deno.Command("unshare", {
  args: ["-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"],
  stdout: "null",
  stderr: "null",
}).output().then(({ success }) => success, () => false);

/** Makes `m` in the workspace, which is the value behind `--workspace`. */
const WORKSPACE_OF_ARGS =
  'for a in "$@"; do [ "$p" = --workspace ] && w=$a; p=$a; done; mkdir -p "$w/m"';

async function refused(api: AgentApi, path: string, code: status) {
  await rejectsWith(api.read(path), code);
  await rejectsWith(api.write(path, "x"), code);
}

export const fileErrorCases: readonly ContractCase[] = [
  {
    id: "file-error.directory",
    line: "a directory: FAILED_PRECONDITION, read and write; the directory stays",
    async run(target) {
      const { api, dir, root } = target;
      await api.write(`${dir}/d/file`, "F");
      for (const path of [`${dir}/d`, `${dir}/d/`, `${root}/${dir}/d`, ".", root]) {
        await refused(target.api, path, FAILED_PRECONDITION);
      }
      await api.sh('ln -s d "$1/to-dir"', dir);
      await refused(target.api, `${dir}/to-dir`, FAILED_PRECONDITION);
      assertEquals(await api.readText(`${dir}/d/file`), "F");
    },
  },
  {
    id: "file-error.component",
    line: "a component that is no directory: FAILED_PRECONDITION",
    async run(target) {
      await target.api.write(`${target.dir}/file`, "F");
      await refused(target.api, `${target.dir}/file/x`, FAILED_PRECONDITION);
      await refused(target.api, `${target.dir}/file/x/y`, FAILED_PRECONDITION);
      assertEquals(await target.api.readText(`${target.dir}/file`), "F");
    },
  },
  {
    id: "file-error.trailing-slash",
    line: "a file with a trailing slash is a component that is no directory",
    async run(target) {
      await target.api.write(`${target.dir}/file`, "F");
      await refused(target.api, `${target.dir}/file/`, FAILED_PRECONDITION);
      assertEquals(await target.api.readText(`${target.dir}/file`), "F");
    },
  },
  {
    id: "file-error.loop",
    line: "a symlink loop: FAILED_PRECONDITION",
    async run(target) {
      await target.api.sh('cd "$1"; ln -s b a; ln -s a b; ln -s self self', target.dir);
      for (const name of ["a", "a/x", "self", "self/x"]) {
        await refused(target.api, `${target.dir}/${name}`, FAILED_PRECONDITION);
      }
    },
  },
  {
    id: "file-error.special",
    line: "a FIFO, socket or device: FAILED_PRECONDITION, at once, nothing opened",
    async run(target) {
      const { api, dir } = target;
      await api.sh('mkfifo "$1/fifo"; ln -s fifo "$1/to-fifo"', dir);
      // 64 at once: a FIFO that were opened would hold up its thread until a writer comes.
      const reads = Array.from(
        { length: 64 },
        () => rejectsWith(api.read(`${dir}/fifo`), FAILED_PRECONDITION),
      );
      await api.write(`${dir}/meanwhile`, "M");
      assertEquals(await api.readText(`${dir}/meanwhile`), "M");
      await Promise.all(reads);
      await refused(target.api, `${dir}/fifo`, FAILED_PRECONDITION);
      await refused(target.api, `${dir}/to-fifo`, FAILED_PRECONDITION);
      assertEquals(await api.sh('test -p "$1/fifo" && echo fifo', dir), "fifo");
    },
  },
  {
    id: "file-error.socket",
    line: "a socket: FAILED_PRECONDITION",
    lifecycle: true,
    async run() {
      await using workspace = await createTempDir();
      await using agent = await startAgentProcess({
        workspace: workspace.path,
        flags: ["--unix", `${workspace.path}/socket`],
      });
      using api = new AgentApi(agent.address);
      await refused(api, "socket", FAILED_PRECONDITION);
      await refused(api, `${workspace.path}/socket`, FAILED_PRECONDITION);
    },
  },
  {
    id: "file-error.device",
    line: "a device: FAILED_PRECONDITION, nothing opened",
    async run({ api, dir }) {
      // The null device, where the agent may make one.
      const made = await api.sh('mknod "$1/device" c 1 3 2>/dev/null && echo yes; :', dir);
      if (made !== "yes") return;
      await refused(api, `${dir}/device`, FAILED_PRECONDITION);
    },
  },
  {
    id: "file-error.dev-null",
    line: "/dev is closed by Deno's scopes (NotCapable), also with `--root /`",
    settings: { flags: ["--root", "/"] },
    async run({ api }) {
      for (const path of ["/dev/null", "/dev/zero", "/dev/full"]) {
        const code = await api.read(path).then(() => 0, (error) => error.code);
        assert(code === PERMISSION_DENIED || code === FAILED_PRECONDITION, `${path}: ${code}`);
        const written = await api.write(path, "x").then(() => 0, (error) => error.code);
        assert(
          written === PERMISSION_DENIED || written === FAILED_PRECONDITION,
          `${path}: ${written}`,
        );
      }
    },
  },
  {
    id: "file-error.permission",
    line: "EACCES, EPERM: PERMISSION_DENIED",
    async run(target) {
      const { api, dir } = target;
      await api.write(`${dir}/locked/file`, "F", 0);
      await api.sh('chmod 0 "$1/locked/file"; chmod 0555 "$1/locked"', dir);
      // The superuser is stopped by neither; an immutable file stops it, where the file system has such.
      if (await api.sh("id -u") !== "0") {
        await rejectsWith(api.read(`${dir}/locked/file`), PERMISSION_DENIED);
        await rejectsWith(api.write(`${dir}/locked/new`, "x"), PERMISSION_DENIED);
      } else {
        const made = await api.sh('chattr +i "$1/locked" 2>/dev/null && echo yes; :', dir);
        if (made === "yes") {
          await rejectsWith(api.write(`${dir}/locked/new`, "x"), PERMISSION_DENIED);
        }
        await api.sh('chattr -i "$1/locked" 2>/dev/null; :', dir);
      }
      await api.sh('chmod 0755 "$1/locked"', dir);
    },
  },
  ...(canMount ? mountCases() : []),
];

function mountCases(): readonly ContractCase[] {
  return [
    {
      id: "file-error.read-only",
      line: "EROFS: FAILED_PRECONDITION",
      settings: {
        before: mounted(
          'mount -t tmpfs tmpfs "$w/m"',
          'echo F >"$w/m/file"',
          'mount -o remount,ro "$w/m"',
        ),
      },
      async run({ api }) {
        await rejectsWith(api.write("m/file", "x"), FAILED_PRECONDITION);
        await rejectsWith(api.write("m/new", "x"), FAILED_PRECONDITION);
        await rejectsWith(api.write("m/sub/new", "x"), FAILED_PRECONDITION);
        assertEquals(await api.readText("m/file"), "F\n");
      },
    },
    {
      id: "file-error.full",
      line: "ENOSPC: RESOURCE_EXHAUSTED; old file as it was, no temporary file, usable afterwards",
      settings: {
        before: mounted('mount -t tmpfs -o size=1m tmpfs "$w/m"'),
      },
      async run({ api }) {
        await api.write("m/file", "old");
        const tooLarge = new Uint8Array(4 * 1024 * 1024);
        await rejectsWith(api.write("m/file", tooLarge), RESOURCE_EXHAUSTED);
        await rejectsWith(api.write("m/new", tooLarge), RESOURCE_EXHAUSTED);
        assertEquals(await api.readText("m/file"), "old");
        assertEquals(await api.sh("ls -A m"), "file");
        await api.write("m/file", "new");
        assertEquals(await api.readText("m/file"), "new");
      },
    },
    {
      id: "file-error.other-device",
      line:
        "a mount below the workspace: atomic there too; `.ateenv-tmp` at its top is gone when empty",
      settings: {
        before: mounted('mount -t tmpfs tmpfs "$w/m"'),
      },
      async run({ api }) {
        await api.write("m/a/b/file", "first");
        const upload = api.upload();
        await upload.send({ path: "m/a/b/file", chunk: new Uint8Array(100_000) });
        upload.cancel();
        await rejectsWith(upload.answer, status.CANCELLED);
        await api.write("m/a/b/file", "second");
        assertEquals(await api.readText("m/a/b/file"), "second");
        assertEquals(await api.sh("cd m && find . -type f"), "./a/b/file");
        const left = await api.sh("ls -A m");
        assert(left === "a", left);
        await rejectsWith(api.read("m/none"), NOT_FOUND);
      },
    },
  ];
}
