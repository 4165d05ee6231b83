// Moving the bytes of an upload into a file: few large writes, one in flight while more arrives.
// Must not know where the file lies.
import { cancelledError } from "../errors.ts";

/**
 * Chunks from this size on are written as they are, smaller ones are gathered up to it. More at a time is
 * slower: bytes that are still in the processor's cache are copied twice as fast.
 */
const WRITE_BYTES = 256 * 1024;

/**
 * Ends a wait when the call is cancelled, or when something else has failed meanwhile. One listener serves
 * the whole call: a Promise.race per chunk would pile up reactions on one promise.
 */
export class Interruption implements Disposable {
  readonly #signal: AbortSignal;
  readonly #onAbort = () => this.interrupt(cancelledError());
  #reason: { readonly error: unknown } | undefined;
  #reject: ((error: unknown) => void) | undefined;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener("abort", this.#onAbort);
    if (signal.aborted) this.#onAbort();
  }

  /** Ends the wait of now, and all later ones, with `error`. The first error wins. */
  interrupt(error: unknown): void {
    this.#reason ??= { error };
    this.#reject?.(this.#reason.error);
  }

  /** `promise`, or the interruption, whichever comes first. One at a time. */
  race<T>(promise: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#reason !== undefined) reject(this.#reason.error);
      this.#reject = reject;
      promise.then(resolve, reject);
    });
  }

  [Symbol.dispose](): void {
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#reject = undefined;
  }
}

/** Writes all bytes of `source` to `file`; returns how many. Holds two write buffers beside two chunks. */
export async function receiveInto(
  file: Deno.FsFile,
  source: AsyncIterable<Uint8Array>,
  interruption: Interruption,
): Promise<number> {
  const iterator = source[Symbol.asyncIterator]();
  let total = 0;
  let inFlight: Promise<void> = Promise.resolve();
  // The first small chunk is kept as it is: most files have no other.
  let first: Uint8Array | undefined;
  let gathered: Uint8Array | undefined;
  // Takes turns with the other one: that one is being written meanwhile, and no new ones are needed.
  let spare: Uint8Array | undefined;
  let gatheredBytes = 0;

  const write = async (data: Uint8Array) => {
    await interruption.race(inFlight);
    inFlight = writeAll(file, data);
    // A full disk ends the call even if the client pauses.
    inFlight.catch((error) => interruption.interrupt(error));
  };
  const flush = async () => {
    if (first !== undefined) {
      const data = first;
      first = undefined;
      await write(data);
    } else if (gathered !== undefined && gatheredBytes > 0) {
      const full = gathered;
      const data = full.subarray(0, gatheredBytes);
      gathered = undefined;
      gatheredBytes = 0;
      await write(data);
      // What was written before is done, and with it the spare one.
      gathered = spare;
      spare = full;
    }
  };
  const gather = async (chunk: Uint8Array) => {
    if (gatheredBytes + chunk.length > WRITE_BYTES) await flush();
    gathered ??= new Uint8Array(WRITE_BYTES);
    gathered.set(chunk, gatheredBytes);
    gatheredBytes += chunk.length;
  };

  let isDone = false;
  try {
    for (;;) {
      const { done, value: chunk } = await interruption.race(iterator.next());
      if (done) break;
      if (chunk.length === 0) continue;
      total += chunk.length;
      if (chunk.length >= WRITE_BYTES) {
        await flush();
        await write(chunk);
      } else if (first === undefined && gatheredBytes === 0) {
        first = chunk;
      } else {
        if (first !== undefined) {
          const kept = first;
          first = undefined;
          await gather(kept);
        }
        await gather(chunk);
      }
    }
    isDone = true;
    await flush();
    await interruption.race(inFlight);
    return total;
  } finally {
    // The file is closed next: not under a write.
    await inFlight.catch(() => {});
    if (!isDone) iterator.return?.().then(undefined, () => {});
  }
}

async function writeAll(file: Deno.FsFile, data: Uint8Array): Promise<void> {
  for (let written = 0; written < data.length;) {
    written += await file.write(written === 0 ? data : data.subarray(written));
  }
}
