// Sizes that more than one room must agree on.
// A leaf: imports nothing of ours.

/**
 * Most bytes of content in one wire message. A whole message stays under 1 MiB (default clients refuse
 * more than 4 MiB), and the size is a multiple of the page size, so that file reads stay aligned.
 */
export const MAX_PIECE_BYTES = 1024 * 1024 - 4096;

/** Memory for what clients have not taken yet, of each layer that holds some of it. */
const SHARED_BYTES = 64 * 1024 * 1024;
const LEAST_BYTES = 64 * 1024;

/**
 * The part of each of `count` streams in {@linkcode SHARED_BYTES}: a thousand readers that stall must not
 * hold as much each as one alone may. Powers of two, so that readers who came at about the same time cut
 * their pieces at the same places and share them.
 */
export function bytesPerStream(count: number): number {
  let bytes = 1024 * 1024;
  while (bytes > LEAST_BYTES && bytes * count > SHARED_BYTES) bytes /= 2;
  return Math.min(bytes, MAX_PIECE_BYTES);
}

/** Least `--output-limit` that is not 0, in bytes: its segments have 8 KiB. */
export const MIN_OUTPUT_LIMIT_BYTES = 64 * 1024;
