// Whether this system pins directories as this room relies on: tried, not assumed.
// Must not import anything that a call uses but the pinner.
import type { Pinner } from "./pinned_directory.ts";

/** The outcome of {@linkcode testPinning}. */
export interface PinningReport {
  readonly pinning: boolean;
  readonly detail: string;
}

/**
 * Opens a directory, renames it, and makes, finds, renames and removes a file through the descriptor: all of it
 * must happen in the renamed directory.
 */
export function testPinning(pinner: Pinner, root: string): PinningReport {
  const scratch = `${pinner.stateDir}/tmp`;
  const before = `${scratch}/self-test`;
  const after = `${scratch}/self-test-moved`;
  const refusal = tryRoot(pinner, root);
  if (refusal !== undefined) return { pinning: false, detail: refusal };
  try {
    Deno.mkdirSync(before, { recursive: true, mode: 0o700 });
    try {
      using directory = pinner.openDirectory(before);
      if (directory.realPath() !== before) {
        return { pinning: false, detail: `the descriptor of "${before}" does not name it` };
      }
      Deno.renameSync(before, after);
      const made = Deno.makeTempFileSync({ dir: directory.path });
      const name = made.slice(made.lastIndexOf("/") + 1);
      const isThere = Deno.lstatSync(directory.child(name)).isFile &&
        Deno.lstatSync(`${after}/${name}`).isFile && directory.realPath() === after;
      Deno.renameSync(directory.child(name), directory.child("moved"));
      Deno.removeSync(directory.child("moved"));
      return isThere
        ? {
          pinning: true,
          detail: "directories are pinned through the state directory's proc link",
        }
        : { pinning: false, detail: "a renamed directory was not followed" };
    } finally {
      for (const path of [before, after]) {
        try {
          Deno.removeSync(path, { recursive: true });
        } catch {
          // One of the two is not there.
        }
      }
    }
  } catch (error) {
    const { name, message } = error as Error;
    return { pinning: false, detail: `${name}: ${message}` };
  }
}

/**
 * Why the root cannot be opened, if that is so for good: it is outside the scopes, or in /dev, /proc or /sys,
 * where Deno opens nothing without all permissions. A missing one may come yet.
 */
function tryRoot(pinner: Pinner, root: string): string | undefined {
  try {
    using _ = pinner.openDirectory(root);
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) {
      return `the agent's policy does not let it open "${root}": ${error.message}`;
    }
  }
  return undefined;
}
