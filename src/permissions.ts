// What the agent gives up once it has started, and whether it was confined at all.
// Must not know gRPC.
import type { Logger } from "./log.ts";

/** Needed to start (net: to listen), not to serve: given up together once the address is bound. */
const GIVEN_UP = ["net", "sys", "ffi", "import", "env"] as const;

/**
 * Gives up what was needed only to start. From now on the agent can open no connection of its own;
 * connections that come in through the open listeners are still served.
 */
export function giveUpPermissions(): void {
  for (const name of GIVEN_UP) Deno.permissions.revokeSync({ name });
}

/** Warns when nothing confines the agent, as under `deno run -A`. To be called before giving up. */
export function warnIfUnconfined(log: Logger): void {
  const isUnconfined = (["read", "write", "ffi"] as const).every((name) =>
    Deno.permissions.querySync({ name }).state === "granted"
  );
  if (isUnconfined) {
    log.warn("unconfined: the agent was given all permissions; start it through src/start.sh");
  }
}
