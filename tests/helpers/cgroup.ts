// A directory of cgroups for a test. It takes root, and a mount of cgroup v2 that can be written to.

/** Made by {@linkcode createCgroup}. */
export interface TestCgroup extends AsyncDisposable {
  readonly path: string;
  /** Names of the cgroups below it. */
  children(): Promise<string[]>;
}

/** What a program prints. Under the tests' permissions, only others can read /proc and /sys. */
export async function text(command: string, ...args: string[]): Promise<string> {
  const { stdout } = await new Deno.Command(command, { args, stderr: "null" }).output();
  return new TextDecoder().decode(stdout);
}

/** @returns why there can be none here, in place of one */
export async function createCgroup(): Promise<TestCgroup | string> {
  const mounts = (await text("cat", "/proc/mounts")).split("\n").map((line) => line.split(" "));
  const mount = mounts.find(([, , type, options]) =>
    type === "cgroup2" && options!.split(",").includes("rw")
  )?.[1];
  if (mount === undefined) return "no mount of cgroup v2 that can be written to";
  const path = `${mount}/ateenvd-test-${crypto.randomUUID()}`;
  const made = await text(
    "sh",
    "-c",
    'mkdir "$1" && test -e "$1/cgroup.kill" && echo ok',
    "sh",
    path,
  );
  if (made !== "ok\n") return `no cgroup can be made below ${mount}, or not be killed`;
  return {
    path,
    async children() {
      const names = await text("find", path, "-mindepth", "1", "-type", "d", "-printf", "%f\n");
      return names.split("\n").filter((name) => name !== "");
    },
    async [Symbol.asyncDispose]() {
      await text(
        "sh",
        "-c",
        'echo 1 >"$1/cgroup.kill"; find "$1" -depth -type d -exec rmdir {} +',
        "sh",
        path,
      );
    },
  };
}
