// A FIFO that a process waits at: order between a test and its processes, without time.
import type { AgentApi } from "../helpers/agent_api.ts";

/**
 * Shell text waits at a gate with `read _ <"$1"`. A gate is for one wait: whoever opened it may still hold it
 * when the next wait begins.
 */
export interface Gate {
  /** Absolute path of the FIFO, for the shell text of the process that waits. */
  readonly path: string;
  /** Lets one process through; waits until one is there. */
  open(): Promise<void>;
}

/** Makes a gate in `dir` (relative to the workspace at `root`). */
export async function createGate(
  target: { readonly api: AgentApi; readonly root: string; readonly dir: string },
  name = "gate",
): Promise<Gate> {
  const path = `${target.root}/${target.dir}/${name}`;
  await target.api.sh('mkfifo "$1"', path);
  return {
    path,
    // Opening a FIFO for writing waits for its reader.
    open: async () => void await target.api.sh('echo >"$1"', path),
  };
}
