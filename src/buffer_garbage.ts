// Collects the garbage that buffers are, before V8 takes it for a reason to look at the whole heap.
// Must not import anything: whoever moves bytes in bulk counts them here.

/*
 * A buffer's bytes lie outside V8's heap, but count towards the size at which V8 marks all of it, ten
 * milliseconds each time: in a download that was a third of the CPU. Short-lived buffers would go with the
 * next collection of the young generation, a quarter of a millisecond, but that waits until small objects
 * fill it. So it is collected by the bytes that went through.
 */

/**
 * Bytes between two collections. Each byte is in three to five buffers on its way, and those of one round are
 * freed during the next: together that stays below the 64 MiB that start.sh's flags give.
 */
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
