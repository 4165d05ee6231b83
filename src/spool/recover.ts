// What an agent that is gone left in a process's directory: which segments can still be served.
// Must not import process/; files that are not named like segments are not looked at.
import { fromOsError } from "../errors.ts";
import { errorFields, type Logger } from "../log.ts";
import type { Segment } from "./segment_log.ts";
import type { SegmentFiles } from "./segment_files.ts";
import type { OutputSource } from "./stream_spool.ts";

const SEGMENT_NAME = /^(stdout|stderr)\.(0|[1-9][0-9]{0,15})$/;
const LIKE_A_SEGMENT = /^(stdout|stderr)\./;

/**
 * The newest segments of both streams that follow each other without a gap. Older ones, from before a
 * gap, count as dropped and are deleted.
 * @throws AgentError when the directory cannot be read
 */
export async function recoverSegments(
  directory: string,
  files: SegmentFiles,
  logger: Logger,
): Promise<Record<OutputSource, Segment[]>> {
  const found: Record<OutputSource, Segment[]> = { stdout: [], stderr: [] };
  try {
    for await (const { name } of Deno.readDir(directory)) {
      const segment = await segmentOf(directory, name);
      if (segment !== undefined) found[segment.source].push(segment);
      else if (LIKE_A_SEGMENT.test(name)) {
        logger.warn("not a spool segment, left alone", { directory, name });
      }
    }
  } catch (error) {
    throw fromOsError(error, "cannot read the stored output");
  }
  for (const source of ["stdout", "stderr"] as const) {
    const { kept, stale } = newestRun(found[source]);
    found[source] = kept;
    for (const { start } of stale) {
      await files.remove(`${directory}/${source}.${start}`).catch((error) => {
        logger.warn("cannot delete a spool segment", { directory, ...errorFields(error) });
      });
    }
  }
  return found;
}

async function segmentOf(
  directory: string,
  name: string,
): Promise<Segment & { source: OutputSource } | undefined> {
  const [, source, digits] = SEGMENT_NAME.exec(name) ?? [];
  const start = Number(digits);
  if (source === undefined || !Number.isSafeInteger(start)) return undefined;
  // lstat: a link is nothing that an agent has made.
  const info = await Deno.lstat(`${directory}/${name}`);
  if (!info.isFile) return undefined;
  return { source: source as OutputSource, start, end: start + info.size };
}

/** Splits segments in any order into the newest contiguous run and the rest. */
export function newestRun(segments: readonly Segment[]): { kept: Segment[]; stale: Segment[] } {
  const sorted = segments.toSorted((a, b) => a.start - b.start);
  let from = sorted.length - 1;
  while (from > 0 && sorted[from - 1]!.end === sorted[from]!.start) from--;
  return { kept: sorted.slice(Math.max(0, from)), stale: sorted.slice(0, Math.max(0, from)) };
}
