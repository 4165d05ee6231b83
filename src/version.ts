// The version of the agent, its client and its CLI: the one place where it stands, and what it runs on.
// A leaf: imports nothing of ours.
import config from "../deno.json" with { type: "json" };

/** Semantic version of this project (https://semver.org). */
export const VERSION: string = config.version;

/** Version of the gRPC library, as `deno.json` pins it. */
export const GRPC_VERSION: string = config.imports["@grpc/grpc-js"].replace(/^.*@/, "");

/** Oldest Deno whose HTTP/2 server has back-pressure. */
export const MIN_DENO_VERSION = "2.9.4";

/** Whether `version` is at least `minimum`; both are `MAJOR.MINOR.PATCH` with an optional suffix. */
export function isAtLeast(version: string, minimum: string): boolean {
  const parse = (text: string) => text.split(/[.+-]/, 3).map(Number);
  const [have, want] = [parse(version), parse(minimum)];
  for (let index = 0; index < 3; index++) {
    const difference = (have[index] ?? 0) - (want[index] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}
