// Promises that are settled from outside, and waits that an abort ends.
// Must not know what is waited for.
import { abortError } from "./error.ts";

/** A promise with its functions. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T | PromiseLike<T>) => void;
  readonly reject: (reason: unknown) => void;
}

/** Promise.withResolvers(), which Node 20 does not have. */
export function deferred<T>(): Deferred<T> {
  let resolve!: Deferred<T>["resolve"];
  let reject!: Deferred<T>["reject"];
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}

/** `promise`, unless the signal is aborted first. What `promise` stands for goes on. */
export async function abortable<T>(
  promise: Promise<T>,
  signal: AbortSignal | undefined,
): Promise<T> {
  if (signal === undefined) return await promise;
  // Nobody may be left to see how it ends.
  promise.catch(() => {});
  if (signal.aborted) throw abortError(signal);
  const aborted = deferred<never>();
  const onAbort = () => aborted.reject(abortError(signal));
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([promise, aborted.promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
