// Sizes that more than one room must agree on.
// A leaf: imports nothing of ours.

/**
 * Most bytes of content in one wire message. A whole message stays under 1 MiB (default clients refuse
 * more than 4 MiB), and the size is a multiple of the page size, so that file reads stay aligned.
 */
export const MAX_PIECE_BYTES = 1024 * 1024 - 4096;
