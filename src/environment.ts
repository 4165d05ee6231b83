// What children must not inherit is taken out of the agent's own environment, once, at start.
// Must not know gRPC; the only place that changes the environment.
import type { AgentConfig } from "./config.ts";
import type { Logger } from "./log.ts";

/** Names that are the agent's or its runner's, beside those that start.sh finds by their prefix. */
const OWN_NAMES = [
  ...["PORT", "WORKSPACE", "WORKDIR", "LOG_DIR", "INIT_CWD", "OTEL_DENO"],
  // The shell's word for the agent's directory, which is not where a child starts: it can ask the kernel.
  ...["PWD", "OLDPWD"],
];

/**
 * Deletes the agent's own variables, so that children (which inherit the rest unread, values that are not
 * UTF-8 included) do not get them. Under scoped run LD_* go too, since Deno would refuse every spawn
 * with them.
 */
export function takeEnvironment(config: AgentConfig, log: Logger): void {
  const inherited = config.stripEnv.filter((name) => /^LD_/.test(name));
  const names = config.stripEnv.filter((name) => !/^LD_/.test(name));
  for (const name of [...OWN_NAMES, ...names]) Deno.env.delete(name);
  if (config.allowRun === undefined || inherited.length === 0) return;
  for (const name of inherited) Deno.env.delete(name);
  log.warn("LD_* variables taken out: a scoped run permission allows no child that has them", {
    names: inherited,
  });
}
