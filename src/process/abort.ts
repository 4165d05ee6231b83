// Waiting for something that goes on without the one who waits.
// Must not cancel anything but the wait.
import { cancelledError } from "../errors.ts";

/**
 * `work`, unless `signal` is aborted before it is done. The work goes on in any case.
 * @throws AgentError `cancelled` once aborted
 */
export async function raceAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    work.catch(() => {});
    throw cancelledError();
  }
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(cancelledError());
  signal.addEventListener("abort", onAbort);
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
