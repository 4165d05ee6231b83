// The same container under gVisor, the usual sandbox of such agents. Takes root and runsc.
// Must not know what is tested in it.
import { createTempDir } from "../helpers/state_dir.ts";
import {
  type ContainerOptions,
  type Outcome,
  readLines,
  run,
  type RunningContainer,
} from "./container.ts";

/** Whether runsc is there and can run here. */
export async function hasGvisor(): Promise<boolean> {
  try {
    return (await run(["runsc", "--platform=ptrace", "--network=none", "do", "true"])).code === 0;
  } catch {
    return false;
  }
}

/** Starts it, and waits for the agent's first line. @throws where that does not come */
export async function startGvisor(options: ContainerOptions): Promise<RunningContainer> {
  await using parts = new AsyncDisposableStack();
  const { path } = parts.use(await createTempDir("ateenvd-gvisor-"));
  await Deno.writeTextFile(`${path}/config.json`, JSON.stringify(toSpec(options)));
  const flags = [
    "--root",
    `${path}/state`,
    "--platform=ptrace",
    "--network=none",
    "--ignore-cgroups",
  ];
  const runsc = (...words: readonly string[]) => run(["runsc", ...flags, ...words]);
  const beforeMs = performance.now();
  const child = new Deno.Command("runsc", {
    args: [...flags, "run", "-bundle", path, "box"],
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
  const lines = readLines(child.stderr);
  parts.defer(async () => {
    await runsc("kill", "--all", "box", "KILL");
    await child.status;
    await lines.all;
    await runsc("delete", "--force", "box");
  });
  const first = await lines.find((line) => line.includes('"msg":"ateenvd started"'));
  if (first === undefined) throw new Error(`it does not start: ${await lines.all}`);
  const startMs = performance.now() - beforeMs;
  const all = parts.move();
  const exec = (...command: readonly string[]): Promise<Outcome> =>
    runsc("exec", "-env", "PATH=/bin:/usr/bin:/ate/bin", "box", ...command);
  return {
    startMs,
    exec,
    readInit: async (name) => (await exec("/ate/bin/cat", `/proc/1/${name}`)).stdout,
    async stop() {
      const sentMs = performance.now();
      await runsc("kill", "box", "TERM");
      const { code } = await child.status;
      return { code, stopMs: performance.now() - sentMs, log: await lines.all };
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

function toSpec({ root, ate, user, env, command }: ContainerOptions) {
  const [uid, gid] = user.split(":").map(Number);
  const held = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
  const isRoot = uid === 0;
  const mount = (destination: string, type: string, options: readonly string[] = []) => ({
    ...{ destination, type, source: type, options },
  });
  return {
    ociVersion: "1.0.2",
    process: {
      user: { uid, gid },
      args: command,
      env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
      cwd: "/",
      capabilities: {
        bounding: held,
        effective: isRoot ? held : [],
        permitted: isRoot ? held : [],
      },
      rlimits: [{ type: "RLIMIT_NOFILE", hard: 1024, soft: 1024 }],
      noNewPrivileges: true,
    },
    root: { path: root, readonly: true },
    mounts: [
      mount("/proc", "proc"),
      mount("/dev", "tmpfs"),
      mount("/tmp", "tmpfs", ["mode=1777"]),
      mount("/workspace", "tmpfs"),
      mount("/var/lib/ateenv", "tmpfs"),
      ...(ate === undefined
        ? []
        : [{ destination: "/ate", type: "bind", source: ate, options: ["bind", "ro"] }]),
    ],
    linux: { namespaces: ["pid", "network", "ipc", "uts", "mount"].map((type) => ({ type })) },
  };
}
