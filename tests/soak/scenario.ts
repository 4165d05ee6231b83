// What a soak scenario is: a load of some size, and figures that are judged.

/** Size and randomness of a run. */
export interface SoakContext {
  /** 1 for the full size, 0.1 for a tenth. */
  readonly scale: number;
  /** Seeds every random choice; printed, so that a failure can be repeated. */
  readonly seed: number;
  /** One line of progress. */
  note(text: string): void;
}

/** A figure and what it must be. */
export interface Finding {
  readonly what: string;
  readonly measured: string;
  readonly wanted: string;
  readonly ok: boolean;
}

/** A load on a real agent. */
export interface Scenario {
  readonly name: string;
  run(context: SoakContext): Promise<readonly Finding[]>;
}

/** `count` scaled, and at least `least`. */
export function scaled(context: SoakContext, count: number, least = 1): number {
  return Math.max(least, Math.round(count * context.scale));
}

/** A finding on something that has to be exactly so. */
export function exactly<T>(what: string, measured: T, wanted: T): Finding {
  return { what, measured: String(measured), wanted: String(wanted), ok: measured === wanted };
}

/** A finding on a number that may be at most so much. */
export function atMost(what: string, measured: number, limit: number, unit: string): Finding {
  return {
    what,
    measured: `${round(measured)} ${unit}`,
    wanted: `<= ${round(limit)} ${unit}`,
    ok: measured <= limit,
  };
}

/**
 * Flatness of a series: its last third against its middle third, as a ratio of means; the first third is
 * warm-up.
 */
export function flat(what: string, series: readonly number[], limit = 1.2): Finding {
  const third = Math.floor(series.length / 3);
  const mean = (values: readonly number[]) =>
    values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  const ratio = mean(series.slice(-third)) / mean(series.slice(third, 2 * third));
  return {
    what: `${what}, last third / middle third`,
    measured: ratio.toFixed(3),
    wanted: `<= ${limit}`,
    ok: ratio <= limit,
  };
}

function round(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

/** A small generator of random numbers with a seed (mulberry32): [0, 1). */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6D2B79F5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
