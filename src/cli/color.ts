// Colours, where they help and are wanted.
// Must not be used for what a program reads.
import type { Sink, Stdio } from "./stdio.ts";

const CODES = { green: 32, yellow: 33, red: 31 } as const;

/** A colour of text. */
export type Color = keyof typeof CODES;

/** Colours only on a terminal, and not where NO_COLOR (no-color.org) is set or the terminal is dumb. */
export function painter(io: Stdio, sink: Sink): (color: Color, text: string) => string {
  const isPlain = !sink.isTerminal || (io.env("NO_COLOR") ?? "") !== "" ||
    io.env("TERM") === "dumb";
  return (color, text) => isPlain ? text : `\x1b[${CODES[color]}m${text}\x1b[0m`;
}
