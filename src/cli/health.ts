// `ateenv health`: for probes. Needs no token, makes no gRPC call, answers with its exit code.
import { readHealth } from "../client/readyz.ts";
import { toCliError } from "./failure.ts";
import type { Session } from "./session.ts";

/** Longer than any healthy answer takes, shorter than the usual interval of a probe. */
const PROBE_MS = 1_500;

/** 0 when the agent is ready, 1 when it is not or cannot be asked. */
export async function health(session: Session): Promise<number> {
  const { address, tls } = await session.target();
  try {
    const { ready, message } = await readHealth(
      address,
      tls,
      AbortSignal.any([session.io.interrupt, AbortSignal.timeout(PROBE_MS)]),
    );
    await session.answer({ ready, message }, `${message}\n`);
    return ready ? 0 : 1;
  } catch (error) {
    if (session.io.interrupt.aborted) throw error;
    const { message } = toCliError(error);
    await session.answer({ ready: false, message }, `${message}\n`);
    return 1;
  }
}
