// Waiting without polling: one signal for both streams of a process, watched by any number of readers.
// Must not know what changed: a watcher looks for itself.

/** Wakes those who wait. Costs nothing per change for watchers that are busy elsewhere. */
export class ChangeSignal {
  #version = 0;
  #waiting: Watcher[] = [];

  /** Counts the changes so far. */
  get version(): number {
    return this.#version;
  }

  /** Says that something changed: each waiting watcher wakes once. */
  notify(): void {
    this.#version++;
    if (this.#waiting.length === 0) return;
    const woken = this.#waiting;
    this.#waiting = [];
    for (const watcher of woken) watcher.wake();
  }

  /** A watcher that sees every change from now on. Dispose it. */
  watch(): Watcher {
    return new Watcher(this);
  }

  /** For {@linkcode Watcher} only. */
  enqueue(watcher: Watcher): void {
    this.#waiting.push(watcher);
  }

  /** For {@linkcode Watcher} only. */
  dequeue(watcher: Watcher): void {
    const index = this.#waiting.indexOf(watcher);
    if (index >= 0) this.#waiting.splice(index, 1);
  }

  /** How many wait now: for tests and metrics. */
  get waiting(): number {
    return this.#waiting.length;
  }
}

/** One reader's view of a {@linkcode ChangeSignal}; one wait at a time. */
export class Watcher implements Disposable {
  readonly #change: ChangeSignal;
  #seen: number;
  #pending: PromiseWithResolvers<void> | undefined;
  #disposed = false;

  constructor(change: ChangeSignal) {
    this.#change = change;
    this.#seen = change.version;
  }

  /**
   * Resolves at the first change since the previous wait was over (at once when there was one), or when
   * the watcher is disposed. Look at the state after it, not only before.
   */
  wait(): Promise<void> {
    if (this.#disposed || this.#seen !== this.#change.version) {
      this.#seen = this.#change.version;
      return Promise.resolve();
    }
    this.#pending = Promise.withResolvers();
    this.#change.enqueue(this);
    return this.#pending.promise;
  }

  /** For {@linkcode ChangeSignal} only. */
  wake(): void {
    this.#seen = this.#change.version;
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.resolve();
  }

  /** Ends a pending wait. */
  [Symbol.dispose](): void {
    this.#disposed = true;
    if (this.#pending === undefined) return;
    this.#change.dequeue(this);
    this.wake();
  }
}
