// Which names and links of a foreign archive may become local ones.
// Pure: this is the wall between a hostile sandbox and the user's files.
import { CliError } from "./failure.ts";

/**
 * The components of an entry's name below the directory that is copied; empty for that itself.
 *
 * @throws {CliError} for a name that leads out of it, or that cannot be written as it is.
 */
export function toComponents(name: string): readonly string[] {
  if (name.startsWith("/")) throw refuse(name, "its name is absolute");
  // U+FFFD: the name is not UTF-8, and would come out as another one.
  if (/[\0\uFFFD]/.test(name)) throw refuse(name, "its name is not plain UTF-8");
  const components = name.split("/").filter((part) => part !== "" && part !== ".");
  if (components.includes("..")) throw refuse(name, 'its name has ".."');
  return components;
}

/**
 * Whether a link at `components` that says `target` stays inside the directory, whatever other links do:
 * `..` is taken only at its beginning, where it climbs directories that are known to be real ones. What
 * follows goes down, through directories and through links that stay inside themselves.
 */
export function staysInside(components: readonly string[], target: string): boolean {
  if (target === "" || target.startsWith("/") || /[\0\uFFFD]/.test(target)) return false;
  const parts = target.split("/").filter((part) => part !== "" && part !== ".");
  const down = parts.findIndex((part) => part !== "..");
  const climbs = down === -1 ? parts.length : down;
  return climbs <= components.length - 1 && !parts.slice(climbs).includes("..");
}

/** The refusal of an archive. */
export function refuse(name: string, why: string): CliError {
  return new CliError(`refused ${JSON.stringify(name)} from the sandbox: ${why}`, {
    kind: "refused",
    advice: "nothing was copied",
  });
}
