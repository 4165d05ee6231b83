// Runs tests/fixtures/programs/swap_driver.ts with chosen permissions, uid and umask.
// Holds no tests itself.

const DRIVER = new URL("../fixtures/programs/swap_driver.ts", import.meta.url).pathname;

/** One call of the driver. */
export interface Step {
  readonly op: "read" | "write" | "selfTest" | "removeStrays";
  readonly path: string;
  readonly text?: string;
  readonly mode?: number;
  readonly hang?: boolean;
}

export interface DriverOptions {
  readonly root: string;
  readonly state: string;
  readonly steps: readonly Step[];
  readonly readPaths?: readonly string[];
  /** Directories of the permission flags; default: root and state. */
  readonly scopes?: readonly string[];
  readonly workspace?: string;
  readonly umask?: string;
  readonly uid?: number;
  readonly deno?: string;
  readonly env?: Record<string, string>;
}

/** The driver's command, with the permissions that the agent has in production. */
export function driverCommand(options: DriverOptions): Deno.Command {
  const { root, state, steps, readPaths = [], umask = "022", uid, env = {} } = options;
  const scopes = (options.scopes ?? [root, state, ...readPaths]).join(",");
  const job = {
    options: {
      root,
      workspace: options.workspace ?? root,
      readPaths,
      forbidden: [],
      stateDir: state,
      fsync: false,
    },
    steps,
  };
  return new Deno.Command("sh", {
    args: [
      "-c",
      `umask ${umask} && exec "$@"`,
      "sh",
      options.deno ?? Deno.execPath(),
      "run",
      "--no-prompt",
      "--no-check",
      `--allow-read=${scopes}`,
      `--allow-write=${scopes}`,
      "--allow-env",
      DRIVER,
      JSON.stringify(job),
    ],
    env,
    cwd: "/",
    stdout: "piped",
    stderr: "piped",
    ...(uid === undefined ? {} : { uid, gid: uid }),
  });
}

/** Runs the steps one after the other; each outcome is "ok:content" or "kind:message". */
export async function drive(options: DriverOptions): Promise<string[]> {
  const { success, stdout, stderr } = await driverCommand(options).output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  return JSON.parse(new TextDecoder().decode(stdout));
}
