// What the state directory remembers about temporary files elsewhere, so that a killed agent's go.
// Must not import resolve.ts.

/** A directory that holds, or may hold, temporary files of the agent. */
export interface StrayNote {
  readonly directory: string;
  /** What the names of this agent's files in it start with: other agents may share the mount. */
  readonly prefix: string;
}

/** The file STATE/temporary-directories: one JSON object a line. */
export class StrayNotes {
  readonly #path: string;
  readonly #noted = new Set<string>();
  #prefix: string | undefined;

  constructor(stateDir: string) {
    this.#path = `${stateDir}/temporary-directories`;
  }

  /**
   * What the names of this agent's files start with. Made at the first use, since agents that are started
   * from one memory image would otherwise share it.
   */
  filePrefix(): string {
    return this.#prefix ??= crypto.randomUUID().slice(0, 8) + "-";
  }

  /** Remembers `directory`; on disk when it returns. Throws OS errors. */
  add(directory: string): void {
    if (this.#noted.has(directory)) return;
    const note: StrayNote = { directory, prefix: this.filePrefix() };
    Deno.writeTextFileSync(this.#path, JSON.stringify(note) + "\n", { append: true, mode: 0o600 });
    this.#noted.add(directory);
  }

  /** All that was ever noted since {@linkcode clear}. A torn last line is left out. */
  read(): StrayNote[] {
    let text: string;
    try {
      text = Deno.readTextFileSync(this.#path);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return [];
      throw error;
    }
    return text.split("\n").flatMap((line) => {
      try {
        const { directory, prefix } = JSON.parse(line);
        return typeof directory === "string" && /^[0-9a-f]{8}-$/.test(prefix)
          ? [{ directory, prefix }]
          : [];
      } catch {
        return [];
      }
    });
  }

  /** Forgets everything. */
  clear(): void {
    this.#noted.clear();
    try {
      Deno.removeSync(this.#path);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
}
