// The signal that a component of a path was exchanged between two looks at it.
// Must not import anything but errors.ts.
import { osErrorCode } from "../errors.ts";

/** Something changed between two looks: `Resolver.withPath` starts again and sees the new state. */
export class ChangedMeanwhile extends Error {
  override readonly name = "ChangedMeanwhile";
}

/**
 * The error as it is, or ChangedMeanwhile where a component that was exchanged just now can have caused it:
 * what was there a moment ago is gone, is a link, or leads to where Deno's permissions end. If it was not
 * the cause, the next attempt says so.
 */
export function changedOr(error: unknown): unknown {
  switch (osErrorCode(error)) {
    case "ENOENT":
    case "ENOTDIR":
    case "ELOOP":
    case "EINVAL": // readlink of what is no link any more
    case "ENXIO":
    case "NotCapable":
      return new ChangedMeanwhile("a component of the path was exchanged", { cause: error });
  }
  return error;
}
