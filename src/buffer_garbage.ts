// Collects the garbage that buffers are, before V8 takes it for a reason to look at the whole heap.
// Must not import anything: whoever moves bytes in bulk counts them here.

/*
 * A buffer's bytes lie outside V8's heap. Short-lived ones would go with the next collection of the young
 * generation, but that waits until small objects fill it; after 64 MiB of buffers V8 marks the whole heap
 * instead, ten milliseconds each time: a third of the CPU of a download. So the young generation is
 * collected by the bytes that went through: a quarter of a millisecond.
 */

/** Bytes between two collections. Each byte is in three to five buffers on its way: well below 64 MiB. */
const COLLECT_BYTES = 8 * 1024 * 1024;

/** What V8 offers with `--expose-gc`, which `start.sh` sets. */
const collect = (globalThis as { gc?: (options: { type: "minor" }) => void }).gc;

let movedBytes = 0;

/** Says that `bytes` more went through buffers that nobody needs any more. Without `--expose-gc` nothing happens. */
export function countMoved(bytes: number): void {
  movedBytes += bytes;
  if (movedBytes < COLLECT_BYTES) return;
  movedBytes = 0;
  collect?.({ type: "minor" });
}
