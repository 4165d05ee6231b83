// What the CLI sees of the process that it runs in, so that it can be run without one.
// Must not import anything of ours.

/** Where bytes go. */
export interface Sink {
  readonly isTerminal: boolean;
  /** Columns of the terminal, or undefined. */
  readonly columns: number | undefined;
  /** @throws {OutputClosed} when nobody reads any more. */
  write(bytes: Uint8Array): Promise<void>;
}

/** Standard streams, variables and signals. */
export interface Stdio {
  readonly stdout: Sink;
  readonly stderr: Sink;
  /** Opened only by commands that read it. */
  stdin(): ReadableStream<Uint8Array>;
  env(name: string): string | undefined;
  /** Aborted, with an {@linkcode Interrupt} as its reason, by Ctrl-C and its like. */
  readonly interrupt: AbortSignal;
  /** Aborted, alike, by a second one: whoever asked does not want to wait for what follows the first. */
  readonly insist: AbortSignal;
}

/** The reader of our output has gone (`| head -1`): no reason to say anything. */
export class OutputClosed extends Error {
  override readonly name = "OutputClosed";
}

/** A signal that asks the CLI to end. */
export class Interrupt extends Error {
  override readonly name = "Interrupt";
  /** 128 + signal, as a shell reports it. */
  readonly exitCode: number;

  constructor(exitCode: number) {
    super("interrupted");
    this.exitCode = exitCode;
  }
}

const encoder = new TextEncoder();

/** Writes text, not cut into lines. */
export async function writeText(sink: Sink, text: string): Promise<void> {
  await sink.write(encoder.encode(text));
}
