// What a table is made of, put together once; and what it takes over from an earlier agent.
// Must not hold any behaviour of the parts.
import type { ProcessTableOptions } from "./process_table_options.ts";
import { SpoolStore } from "../spool/mod.ts";
import { BackgroundWork } from "./background_work.ts";
import { openProcessKiller, type ProcessKiller } from "./kill/process_killer.ts";
import { ProcessRegister } from "./process_register.ts";
import { RecordStore } from "./record_store.ts";
import { recoverProcesses } from "./recovery.ts";
import { Removal } from "./removal.ts";
import { StandingThread } from "./standing_thread.ts";
import { MARKER_NAME } from "./start_request.ts";
import { UnaskedKills } from "./unasked_kills.ts";

/** The parts of a table. */
export interface TableParts {
  readonly records: RecordStore;
  readonly spools: SpoolStore;
  readonly register: ProcessRegister;
  readonly killer: ProcessKiller;
  readonly unasked: UnaskedKills;
  readonly removal: Removal;
  readonly background: BackgroundWork;
  readonly thread: StandingThread;
}

/**
 * Makes the parts; `shutDownTable` ends them.
 * @throws AgentError `failed-precondition` when a directory of cgroups cannot be used
 */
export async function openTableParts(options: ProcessTableOptions): Promise<TableParts> {
  const { state, clock, log, cgroup } = options;
  const records = new RecordStore(state.processesPath);
  const spools = new SpoolStore({ ...options, logger: log });
  const register = new ProcessRegister({ ...options, drop: (entry) => removal.drop(entry) });
  const fifoPath = `${state.path}/fifo`;
  const killer = await openProcessKiller({
    clock,
    log,
    marker: MARKER_NAME,
    others: () => register.entries,
    fifoPath,
    cgroupPath: cgroup,
  });
  const thread = new StandingThread(clock);
  if (killer.reachesTree) thread.start(fifoPath);
  else {
    log.warn("a kill does not reach the whole tree", {
      killReach: killer.reach,
      why: killer.reason,
    });
  }
  const background = new BackgroundWork(log);
  const unasked = new UnaskedKills({ ...options, killer, background });
  const removal = new Removal({ register, records, spools, killer, unasked, background });
  return { records, spools, register, killer, unasked, removal, background, thread };
}

/** Serves again, ends, or sets aside what an earlier agent left. @returns the order of the next finish */
export async function takeOver(
  { state, clock, log }: ProcessTableOptions,
  { records, spools, register, killer, removal }: TableParts,
): Promise<number> {
  const { entries, nextOrder } = await recoverProcesses({
    records,
    spools,
    asidePath: state.asidePath,
    clock,
    log,
    kill: (target) => killer.kill(target, 0),
    onEvict: (processId) => removal.evict(processId),
  });
  await killer.sweep();
  for (const entry of entries) register.add(entry);
  spools.enforceLimit();
  if (entries.length > 0) {
    log.info("processes of an earlier agent taken over", { count: entries.length });
  }
  return nextOrder;
}
