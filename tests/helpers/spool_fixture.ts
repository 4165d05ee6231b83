// Spools for tests: segments in memory that can be made to fail or to wait, and byte patterns.
import type { Clock, Timer } from "../../src/clock.ts";
import type { LogFields, Logger } from "../../src/log.ts";
import { followOutputs, type FollowRequest, SpoolStore } from "../../src/spool/mod.ts";
import type { SpoolStoreOptions } from "../../src/spool/spool_store.ts";
import type { SegmentFile, SegmentFiles } from "../../src/spool/segment_files.ts";

/** Segments in memory. Each operation takes at least one turn of the event loop, as real ones do. */
export class MemoryFiles implements SegmentFiles {
  readonly contents = new Map<string, Uint8Array>();
  /** Sizes of all writes so far. */
  readonly writes: number[] = [];
  open = 0;
  /** Most operations that change files at the same time. */
  maxConcurrent = 0;
  /** Thrown by creations, writes, reads as long as it is set. */
  createError: Error | undefined;
  writeError: Error | undefined;
  readError: Error | undefined;
  /** Bytes that a failing write leaves behind. */
  partialBytes = 0;
  #concurrent = 0;
  #gate: PromiseWithResolvers<void> | undefined;

  /** Makes writes wait from now on, until the returned function is called. */
  holdWrites(): () => void {
    const gate = this.#gate = Promise.withResolvers();
    return () => {
      this.#gate = undefined;
      gate.resolve();
    };
  }

  get names(): string[] {
    return [...this.contents.keys()].sort();
  }

  create(path: string): Promise<SegmentFile> {
    return this.#change(() => {
      if (this.createError) throw this.createError;
      if (this.contents.has(path)) throw new Deno.errors.AlreadyExists(path);
      this.contents.set(path, new Uint8Array(0));
      this.open++;
      return {
        write: (data) => this.#change(() => this.#write(path, data)),
        close: () => void this.open--,
      };
    });
  }

  async read(path: string, position: number, buffer: Uint8Array): Promise<number> {
    await Promise.resolve();
    if (this.readError) throw this.readError;
    const content = this.contents.get(path);
    if (content === undefined) throw new Deno.errors.NotFound(path);
    const part = content.subarray(position, position + buffer.byteLength);
    buffer.set(part);
    return part.byteLength;
  }

  remove(path: string): Promise<void> {
    return this.#change(() => {
      if (!this.contents.delete(path)) throw new Deno.errors.NotFound(path);
    });
  }

  #write(path: string, data: Uint8Array): void {
    const taken = this.writeError ? data.subarray(0, this.partialBytes) : data;
    const content = this.contents.get(path);
    // Written through its handle, a deleted file is gone all the same.
    if (content !== undefined) this.contents.set(path, concat([content, taken]));
    if (this.writeError) throw this.writeError;
    this.writes.push(data.byteLength);
  }

  async #change<T>(act: () => T): Promise<T> {
    this.#concurrent++;
    this.maxConcurrent = Math.max(this.maxConcurrent, this.#concurrent);
    await this.#gate?.promise;
    await Promise.resolve();
    this.#concurrent--;
    return act();
  }
}

/** A logger that keeps its lines. */
export class KeptLog implements Logger {
  readonly lines: { level: string; message: string; fields: LogFields }[] = [];
  error = (message: string, fields: LogFields = {}) => this.#keep("error", message, fields);
  warn = (message: string, fields: LogFields = {}) => this.#keep("warn", message, fields);
  info = (message: string, fields: LogFields = {}) => this.#keep("info", message, fields);
  debug = (message: string, fields: LogFields = {}) => this.#keep("debug", message, fields);
  enabled = () => true;

  #keep(level: string, message: string, fields: LogFields): void {
    this.lines.push({ level, message, fields });
  }
}

/** A clock whose timers run in the next turn of the event loop, and are counted. */
export class HastyClock implements Clock {
  timers = 0;
  nowMs = () => 0;
  wallTime = () => new Date(0);

  setTimer(_delayMs: number, callback: () => void): Timer {
    this.timers++;
    const handle = setImmediate(callback);
    return { cancel: () => clearImmediate(handle) };
  }
}

/** A store over memory, without limits unless given. */
export function createMemoryStore(options: Partial<SpoolStoreOptions> = {}) {
  const files = new MemoryFiles();
  const logger = new KeptLog();
  const store = new SpoolStore({
    outputLimitBytes: 0,
    spoolLimitBytes: 0,
    logger,
    files,
    clock: new HastyClock(),
    ...options,
  });
  return { files, logger, store };
}

/** Bytes that tell their offset: no part of them looks like one of near by. */
export function pattern(start: number, length: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = byteAt(start + i);
  return bytes;
}

function byteAt(offset: number): number {
  return (offset * 31 + (offset >> 8) * 17 + (offset >> 16) * 7) & 0xff;
}

/** Whether `data` is what {@linkcode pattern} has at `start`. */
export function isPattern(start: number, data: Uint8Array): boolean {
  for (let i = 0; i < data.byteLength; i++) if (data[i] !== byteAt(start + i)) return false;
  return true;
}

export function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.byteLength;
  }
  return whole;
}

/** Reads to the end of a request; the bytes of both streams. */
export async function collectOutputs(
  request: Partial<FollowRequest> & Pick<FollowRequest, "spool">,
): Promise<{ stdout: Uint8Array; stderr: Uint8Array }> {
  const parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  const whole = { stdoutOffset: 0, stderrOffset: 0, follow: false, ...request };
  for await (const { source, data } of followOutputs(whole)) parts[source].push(data);
  return { stdout: concat(parts.stdout), stderr: concat(parts.stderr) };
}

/** Resolves when all that is ready to run has run. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
