// The end of a table: in which order its parts go, within a bound.
// Must not start anything.
import { errorFields } from "../log.ts";
import { Deadline } from "./deadline.ts";
import type { ProcessLauncher } from "./process_launcher.ts";
import type { ProcessTableOptions } from "./process_table_options.ts";
import type { TableParts } from "./table_parts.ts";

/** What a shutdown may take beyond its grace: a look, a kill, the last writes. */
const SHUTDOWN_MARGIN_MS = 1_000;

/**
 * Ends all trees (SIGKILL at half of `graceMs`), then the helpers, the pipes that somebody still holds,
 * what is under way in the background, and the writing of what came last.
 */
export async function shutDownTable(
  options: ProcessTableOptions,
  parts: TableParts,
  launcher: ProcessLauncher,
  graceMs: number,
): Promise<void> {
  const { clock, log } = options;
  const { killer, unasked, thread, register, background, spools } = parts;
  const end = new Deadline(clock, graceMs + SHUTDOWN_MARGIN_MS);
  unasked[Symbol.dispose]();
  try {
    await Promise.race([endTrees(options, parts, graceMs / 2), end.passed]);
  } catch (error) {
    log.error("processes could not be ended", errorFields(error));
  }
  await killer[Symbol.asyncDispose]();
  end.cancel();
  thread.nudge();
  await launcher.stopPumps();
  register[Symbol.dispose]();
  await background.settle();
  await spools.settle();
  for (const { spool } of register.entries) await spool.flush();
  await thread[Symbol.asyncDispose]();
}

/** Ends what runs, and what finished processes have left running. */
async function endTrees(
  { log }: ProcessTableOptions,
  { register, killer }: TableParts,
  graceMs: number,
): Promise<void> {
  const running = [...register.running];
  const left = [...register.entries].filter((entry) => !register.running.has(entry));
  const kills = [...running, ...await killer.findAlive(left)].map((entry) =>
    killer.kill(entry, graceMs).catch((error) => {
      const { processId } = entry;
      log.error("process could not be ended", { processId, ...errorFields(error) });
    })
  );
  await Promise.all(kills);
  await Promise.all(running.map(({ final }) => final));
}
