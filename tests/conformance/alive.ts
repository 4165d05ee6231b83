// Which pids are alive, seen by a process beside them. A zombie is gone.
import type { AgentApi } from "../helpers/agent_api.ts";

/** Those of `pids` that live, as the kernel tells a process of the agent. */
export async function alivePids(api: AgentApi, pids: readonly string[]): Promise<string[]> {
  const printed = await api.sh(
    `for pid in "$@"; do
       state=$(sed -n 's/^State:[[:space:]]*\\(.\\).*/\\1/p' /proc/$pid/status 2>/dev/null)
       case $state in '' | Z | X) ;; *) echo $pid ;; esac
     done; :`,
    ...pids,
  );
  return printed === "" ? [] : printed.split("\n");
}
