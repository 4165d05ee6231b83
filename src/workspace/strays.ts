// What a killed agent has left: temporary files, found again through the state directory.
// Must not import write_file.ts; runs before the first call is served.
import { isWithin, parentPath } from "./path_policy.ts";
import type { Pinner } from "./pinned_directory.ts";
import type { StrayNotes } from "./stray_notes.ts";
import { TEMPORARY_DIRECTORY } from "./temporary_file.ts";

/**
 * Removes the temporary files of earlier agents with the same state directory; returns how many there were.
 * Only names that such an agent made are touched, only in directories that it noted.
 */
export function removeStrays(pinner: Pinner, notes: StrayNotes, root: string): number {
  let removed = removeFiles(pinner, `${pinner.stateDir}/tmp`, "");
  for (const { directory, prefix } of notes.read()) {
    const parent = parentPath(directory);
    if (directory !== `${parent === "/" ? "" : parent}/${TEMPORARY_DIRECTORY}`) continue;
    if (!isWithin(root, directory)) continue;
    removed += removeFiles(pinner, directory, prefix);
    try {
      using holder = pinner.openDirectory(parent);
      if (holder.realPath() === parent) Deno.removeSync(holder.child(TEMPORARY_DIRECTORY));
    } catch {
      // Not there, or still in use by another agent on the same mount.
    }
  }
  notes.clear();
  return removed;
}

function removeFiles(pinner: Pinner, path: string, prefix: string): number {
  let removed = 0;
  try {
    using directory = pinner.openDirectory(path);
    // A link that was put in its place leads to files that are not the agent's.
    if (directory.realPath() !== path) return 0;
    for (const { name } of [...Deno.readDirSync(directory.path)]) {
      if (!name.startsWith(prefix)) continue;
      Deno.removeSync(directory.child(name), { recursive: true });
      removed++;
    }
  } catch {
    // Gone, or not the agent's any more: nothing that it could do.
  }
  return removed;
}
