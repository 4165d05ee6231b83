// Whether children can be another user, found out before the first call.
// Must not use Deno.Command: the spawner that the children get is what is tried.
import { AgentError } from "../errors.ts";
import type { RunAs } from "./deno_spawner.ts";
import { isCannotRun, type SpawnedChild, type Spawner } from "./spawner.ts";

/** Prints what the kernel says of the shell itself, without a further process. */
const WHO_AM_I = `while read -r name ids; do
  case $name in Uid:|Gid:|Groups:) printf '%s %s\\n' "$name" "$ids" ;; esac
done </proc/self/status`;

/** No kernel takes an argument of this size: it says so when the user has been changed already. */
const TOO_LARGE_BYTES = 3 * 1024 * 1024;

/**
 * Tries a spawn as another user. With a policy that does not list `sh`, one that the kernel refuses after
 * the change of user, so that no program runs.
 * @param programs those that the policy lists; undefined: all
 * @throws AgentError `failed-precondition` saying why children cannot be that user, and no more than it
 */
export async function requireRunAs(
  spawner: Spawner,
  { uid, gid }: RunAs,
  programs: readonly string[] | undefined,
): Promise<void> {
  const refusal = (why: string, cause?: unknown) =>
    new AgentError("failed-precondition", `cannot use --run-as ${uid}:${gid}: ${why}`, { cause });
  const attempt = async (command: string[]): Promise<SpawnedChild | undefined> => {
    try {
      const outcome = await spawner.spawn({ command, cwd: "/", env: {} });
      if (!isCannotRun(outcome)) return outcome;
      if (!outcome.reason.endsWith("EPERM")) return undefined;
    } catch (error) {
      if (error instanceof AgentError && error.kind !== "resource-exhausted") return undefined;
      throw refusal("no process can be started", error);
    }
    throw refusal("it takes CAP_SETUID and CAP_SETGID, and the agent does not have them");
  };
  for (const program of programs ?? ["sh"]) await attempt([program, "x".repeat(TOO_LARGE_BYTES)]);
  const shell = await attempt(["sh", "-c", WHO_AM_I]);
  if (shell === undefined) return;
  const [text] = await Promise.all([
    new Response(shell.stdout).text(),
    shell.stderr.cancel(),
    shell.exit,
  ]);
  const [uids, gids, groups] = ["Uid", "Gid", "Groups"].map((name) =>
    (new RegExp(`^${name}: *(.*)$`, "m").exec(text)?.[1] ?? "").split(/\s+/).filter(Boolean)
  );
  // Only a root agent gives its groups up, and a child that had them could read what they may.
  if (groups!.length > 0) throw refusal(`children would keep the groups ${groups!.join(", ")}`);
  const isOther = (ids: string[], id: number) => ids.some((text) => text !== String(id));
  if (isOther(uids!, uid) || isOther(gids!, gid)) {
    throw refusal(`children are ${uids!.join(",")}:${gids!.join(",")}`);
  }
  const victim = await attempt(["sh", "-c", ENDLESS]);
  if (victim !== undefined && !await isKillable(victim)) {
    throw refusal("it takes CAP_KILL to end them, and the agent does not have it");
  }
}

/** Ends by itself once nobody takes its output any more. */
const ENDLESS = "while echo; do :; done";

async function isKillable(victim: SpawnedChild): Promise<boolean> {
  victim.signal("SIGKILL");
  await Promise.all([victim.stdout.cancel(), victim.stderr.cancel()]);
  return (await victim.exit).signal === "SIGKILL";
}
