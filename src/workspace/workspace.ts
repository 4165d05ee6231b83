// The door of this room: reading and writing files for clients, confined to the sandbox root.
// Must not import process/, spool/, rpc/, wire/ or anything of gRPC.
import { AgentError, cancelledError } from "../errors.ts";
import type { Logger } from "../log.ts";
import type { NewOwner } from "./new_directories.ts";
import { type Access, PathPolicy, type PathPolicyOptions } from "./path_policy.ts";
import { Pinner } from "./pinned_directory.ts";
import { readFile } from "./read_file.ts";
import { Resolver } from "./resolve.ts";
import { type PinningReport, testPinning } from "./self_test.ts";
import { StrayNotes } from "./stray_notes.ts";
import { removeStrays } from "./strays.ts";
import { TemporaryFiles } from "./temporary_file.ts";
import { writeFile } from "./write_file.ts";

/** Configuration of {@linkcode Workspace}. All paths are absolute and canonical. */
export interface WorkspaceOptions extends PathPolicyOptions {
  /** The agent's own directory, with the link `proc -> /proc` in it; out of reach for clients. */
  readonly stateDir: string;
  /** Whether a write is on stable storage when it returns. */
  readonly fsync: boolean;
  /**
   * Owner of new files and directories, where the agent may give them away; default: the agent. Of use with
   * `--run-as`, so that the programs that run as another user can change what was uploaded.
   */
  readonly newOwner?: NewOwner | undefined;
  readonly log: Logger;
}

/** Files as clients see them. */
export class Workspace implements AsyncDisposable {
  readonly #resolver: Resolver;
  readonly #pinner: Pinner;
  readonly #notes: StrayNotes;
  readonly #temporaryFiles: TemporaryFiles;
  readonly #fsync: boolean;
  readonly #newOwner: NewOwner | undefined;
  readonly #log: Logger;
  readonly #calls = new Set<Call>();
  #isClosed = false;

  /** @throws {AgentError} invalid-argument if a configured path is not absolute and canonical. */
  constructor(options: WorkspaceOptions) {
    const forbidden = [options.stateDir, ...options.forbidden];
    this.#pinner = new Pinner(options.stateDir);
    this.#resolver = new Resolver(new PathPolicy({ ...options, forbidden }), this.#pinner);
    this.#notes = new StrayNotes(options.stateDir);
    this.#temporaryFiles = new TemporaryFiles(this.#pinner, options.root, this.#notes);
    this.#fsync = options.fsync;
    this.#newOwner = options.newOwner;
    this.#log = options.log;
  }

  /**
   * The content of a regular file in pieces of at most MAX_PIECE_BYTES; an empty file has none. Nothing is
   * opened before the first piece is asked for; everything is closed when the iteration ends or `signal`
   * is aborted.
   *
   * @throws {AgentError} from the iteration, as in the contract's table.
   */
  async *readFile(path: string, signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
    using call = this.#begin("read", signal);
    yield* readFile(this.#resolver, path, call.signal);
  }

  /**
   * Replaces or creates a file atomically; returns the number of bytes written.
   *
   * @param mode 0: a new file gets 0644 and an existing one keeps its mode; else exactly this, up to 07777.
   * @throws {AgentError} as in the contract's table; then the old file is as it was.
   */
  async writeFile(
    path: string,
    mode: number,
    source: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<number> {
    using call = this.#begin("write", signal);
    const context = {
      resolver: this.#resolver,
      temporaryFiles: this.#temporaryFiles,
      fsync: this.#fsync,
      newOwner: this.#newOwner,
    };
    return await writeFile(context, path, mode, source, call.signal);
  }

  /** Removes what a killed agent has left. To be called once, before the first call is served. */
  removeStrays(): Promise<void> {
    const removed = removeStrays(this.#pinner, this.#notes, this.#resolver.policy.root);
    if (removed > 0) this.#log.warn("removed temporary files of an agent that died", { removed });
    return Promise.resolve();
  }

  /** Tries what the confinement leans on. Where it does not hold, files must not be served. */
  selfTest(): Promise<PinningReport> {
    return Promise.resolve(testPinning(this.#pinner, this.#resolver.policy.root));
  }

  /**
   * Cancels all calls and waits until the writes have removed what they made. A read has closed its file by
   * then, too, but its consumer may never come back for the end.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    const calls = [...this.#calls];
    for (const call of calls) call.abort();
    await Promise.all(calls.filter((call) => call.access === "write").map((call) => call.ended));
  }

  #begin(access: Access, signal: AbortSignal): Call {
    if (this.#isClosed) throw new AgentError("unavailable", "the agent is shutting down");
    if (signal.aborted) throw cancelledError();
    return new Call(access, this.#calls, signal);
  }
}

/** A call under way: aborted by its own signal or by the end of the workspace. */
class Call implements Disposable {
  readonly #controller = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  readonly abort = () => this.#controller.abort();

  constructor(
    readonly access: Access,
    readonly calls: Set<Call>,
    readonly outer: AbortSignal,
  ) {
    outer.addEventListener("abort", this.abort, { once: true });
    calls.add(this);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  [Symbol.dispose](): void {
    this.outer.removeEventListener("abort", this.abort);
    this.calls.delete(this);
    this.#ended.resolve();
  }
}
