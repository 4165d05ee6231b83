// The load under which Deno's HTTP/2 falls over without the guard, and what must hold after it.
import { assert } from "@std/assert";
import { runLoad, startEchoProcess } from "./echo_process.ts";

/** Rounds after which the memory has reached its level. */
const WARM_UP_ROUNDS = 12;
const MAX_RSS_BYTES = 256 * 1024 * 1024;

/**
 * `rounds` connections with 1,000 calls each, 64 at a time, then `mixedRounds` with cancels, deadlines and
 * half-written uploads: the server must be alive and answer, and its memory must be flat.
 */
export async function runGuardLoad(
  { rounds, mixedRounds }: { rounds: number; mixedRounds: number },
): Promise<void> {
  await using server = await startEchoProcess();
  const run = async (mode: "calls" | "mixed", count: number) => {
    assert(await runLoad(server.address, mode, count), `the clients failed: ${mode}`);
    assert(server.alive(), `the server died: ${mode}`);
    return await server.rssBytes();
  };
  const warm = await run("calls", WARM_UP_ROUNDS);
  const after = await run("calls", rounds - WARM_UP_ROUNDS);
  assert(after <= 1.2 * warm, `memory grew from ${warm} to ${after} bytes`);
  // Streams bring buffers of their own: a second level, which must not grow either.
  const warmMixed = await run("mixed", Math.min(mixedRounds, WARM_UP_ROUNDS));
  const afterMixed = await run("mixed", mixedRounds);
  assert(afterMixed <= 1.2 * warmMixed, `memory grew from ${warmMixed} to ${afterMixed} bytes`);
  assert(Math.max(after, afterMixed) < MAX_RSS_BYTES, `memory is ${after}, ${afterMixed} bytes`);
}
