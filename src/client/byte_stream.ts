// Async iterables of bytes as the ReadableStreams that the web platform passes around, and back.
// Must not know where the bytes come from.

/**
 * A ReadableStream over what `open` yields. Nothing is opened before the first read, nothing is read
 * ahead, and cancelling the stream aborts the signal that `open` was given.
 */
export function toReadableStream(
  open: (signal: AbortSignal) => AsyncIterable<Uint8Array>,
  signal?: AbortSignal,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const stop = new AbortController();
  const onAbort = () => stop.abort(signal!.reason);
  let iterator: AsyncIterator<Uint8Array> | undefined;
  const release = () => signal?.removeEventListener("abort", onAbort);
  return new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      if (iterator === undefined) {
        if (signal?.aborted) stop.abort(signal.reason);
        else signal?.addEventListener("abort", onAbort, { once: true });
        iterator = open(stop.signal)[Symbol.asyncIterator]();
      }
      try {
        const next = await iterator.next();
        if (!next.done) return controller.enqueue(next.value as Uint8Array<ArrayBuffer>);
        release();
        controller.close();
      } catch (error) {
        release();
        throw error;
      }
    },
    async cancel(reason) {
      release();
      stop.abort(reason);
      // Waits for the end of the call, and swallows that it was aborted.
      await iterator?.return?.().catch(() => {});
    },
  }, { highWaterMark: 0 });
}

/** All of an iterable as one array. Holds everything in memory. */
export async function collectBytes(
  chunks: AsyncIterable<Uint8Array>,
): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return joinBytes(parts);
}

/** The parts, one after the other. */
export function joinBytes(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    joined.set(part, offset);
    offset += part.length;
  }
  return joined;
}
