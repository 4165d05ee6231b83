// From a child's pipe into a spool: the only place where a child's bytes pass through.
// Must not look at the bytes, nor know files or readers.
import { countMoved } from "../buffer_garbage.ts";
import { type Clock, systemClock } from "../clock.ts";
import { Deadline } from "./deadline.ts";

/** Takes over the chunks; a promise asks to wait before the next one. */
export interface OutputSink {
  append(chunk: Uint8Array): Promise<void> | undefined;
  end(): void;
}

/** Capacity of a pipe on Linux: what one read can bring, but for a writer that is just then awake. */
const READ_BYTES = 64 * 1024;

/**
 * A read that brings less than a page has found a pipe with room: a program that writes its lines one by one, each of
 * which would cost a read, a write to disk and a message. Lines that come in a burst are read together, a
 * little later; the first one, and whoever fills the pipe, is read at once.
 */
const SMALL_BYTES = 4096;
const BURST_MS = 2;
const PAUSE_MS = 1;

/** Drains one pipe until its last holder closes it. */
export class OutputPump {
  /** Resolves at the end of the pipe; never rejects. */
  readonly ended: Promise<void>;
  readonly #reader: ReadableStreamBYOBReader;
  readonly #sink: OutputSink;
  readonly #clock: Clock;
  #error: unknown;

  /** Starts at once. The pipe is read whether or not anybody reads the spool. */
  constructor(
    pipe: ReadableStream<Uint8Array<ArrayBuffer>>,
    sink: OutputSink,
    clock: Clock = systemClock,
  ) {
    this.#clock = clock;
    this.#reader = pipe.getReader({ mode: "byob" });
    this.#sink = sink;
    this.ended = this.#run();
  }

  /** Why the pipe could not be read to its end, if so. */
  get error(): unknown {
    return this.#error;
  }

  /** Gives the pipe up, whoever holds it still. */
  async stop(): Promise<void> {
    await this.#reader.cancel().catch(() => {});
    await this.ended;
  }

  async #run(): Promise<void> {
    let readAtMs = -Infinity;
    try {
      let buffer = new Uint8Array(READ_BYTES);
      while (true) {
        const { done, value } = await this.#reader.read(buffer);
        if (done) break;
        countMoved(value.byteLength);
        let behind: Promise<void> | undefined;
        if (value.byteLength * 2 > READ_BYTES) {
          behind = this.#sink.append(value);
          buffer = new Uint8Array(READ_BYTES);
        } else {
          // A few bytes in a large buffer would hold all of it: copied, and the buffer used again.
          behind = this.#sink.append(value.slice());
          buffer = new Uint8Array(value.buffer);
        }
        if (behind !== undefined) await behind;
        const isBurst = this.#clock.nowMs() - readAtMs < BURST_MS;
        if (isBurst && value.byteLength < SMALL_BYTES) {
          await new Deadline(this.#clock, PAUSE_MS).passed;
        }
        readAtMs = this.#clock.nowMs();
      }
    } catch (error) {
      this.#error = error;
    } finally {
      this.#sink.end();
      this.#reader.releaseLock();
    }
  }
}
