// The port to the file system for segments, and the real one.
// Must not import anything of ours: faults are injected here by tests.

/** A segment that is being written. */
export interface SegmentFile {
  /** Writes all of `data` at the end of the file; rejects when any of it could not be written. */
  write(data: Uint8Array): Promise<void>;
  close(): void;
}

/** The few file operations that a spool needs. Errors are those of Deno. */
export interface SegmentFiles {
  /** Makes a new, empty file. */
  create(path: string): Promise<SegmentFile>;
  /** Fills `buffer` from `position` on; returns the bytes read, fewer only at the end of the file. */
  read(path: string, position: number, buffer: Uint8Array): Promise<number>;
  remove(path: string): Promise<void>;
}

class DenoSegmentFile implements SegmentFile {
  readonly #file: Deno.FsFile;

  constructor(file: Deno.FsFile) {
    this.#file = file;
  }

  async write(data: Uint8Array): Promise<void> {
    let done = await this.#file.write(data);
    // A short write is what a nearly full disk gives; the next one then names the reason.
    while (done < data.byteLength) done += await this.#file.write(data.subarray(done));
  }

  close(): void {
    this.#file.close();
  }
}

/** Segments as files, readable by the agent's user only. */
export const denoSegmentFiles: SegmentFiles = {
  async create(path) {
    return new DenoSegmentFile(
      await Deno.open(path, { write: true, createNew: true, mode: 0o600 }),
    );
  },

  async read(path, position, buffer) {
    // Opened for each read: a reader that waits for its client holds no descriptor.
    using file = await Deno.open(path);
    if (position > 0) file.seekSync(position, Deno.SeekMode.Start);
    let done = 0;
    while (done < buffer.byteLength) {
      const count = await file.read(done === 0 ? buffer : buffer.subarray(done));
      if (count === null) break;
      done += count;
    }
    return done;
  },

  remove: (path) => Deno.remove(path),
};
