// Where a cgroup that /proc names is in the file system.
// Pure: must not touch the OS.

/**
 * The directory of the cgroup `wanted`, told from another cgroup of the same mount whose name and
 * directory are both known: /proc/PID/cgroup names cgroups from the root of the namespace, which need
 * not be the root of the mount.
 * @returns undefined where `wanted` lies outside of the mount or of the namespace
 */
export function cgroupDirectory(
  wanted: string,
  known: { readonly name: string; readonly directory: string },
): string | undefined {
  const nameParts = partsOf(known.name);
  const directoryParts = partsOf(known.directory);
  let common = 0;
  while (
    common < Math.min(nameParts.length, directoryParts.length) &&
    nameParts.at(-1 - common) === directoryParts.at(-1 - common)
  ) common++;
  const root = nameParts.slice(0, nameParts.length - common);
  const wantedParts = partsOf(wanted);
  const isBelow = root.every((part, index) => wantedParts[index] === part);
  if (common === 0 || !isBelow || wantedParts.includes("..")) return undefined;
  const mount = directoryParts.slice(0, directoryParts.length - common);
  return "/" + [...mount, ...wantedParts.slice(root.length)].join("/");
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "");
}
