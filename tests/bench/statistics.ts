// Medians and spreads of repeated measurements, and rounds that take turns.
// Pure; must not import anything of ours.

/** What several rounds of one measurement came to. */
export interface Summary {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** The middle of `values`; the mean of the two middle ones where their count is even; NaN for none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? sorted[middle]!
    : ((sorted[middle - 1] ?? NaN) + (sorted[middle] ?? NaN)) / 2;
}

/** Median and extremes of `values`. */
export function summarize(values: readonly number[]): Summary {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) };
}

/** One measured quantity: a value per round. */
export type Series = readonly number[];

/** What a measurement returns: quantities by name. */
export type Sample = Readonly<Record<string, number>>;

/** Series by quantity, as `interleave` gathers them for each measurement. */
export type Rounds = Readonly<Record<string, Series>>;

/**
 * Runs all measurements once a round, in an order that turns round from one round to the next, so that
 * a machine that slows down meanwhile slows all of them.
 */
export async function interleave<N extends string>(
  rounds: number,
  measurements: Readonly<Record<N, () => Promise<Sample>>>,
): Promise<Readonly<Record<N, Rounds>>> {
  const names = Object.keys(measurements) as N[];
  const gathered = Object.fromEntries(names.map((name) => [name, {}])) as Record<
    N,
    Record<string, number[]>
  >;
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < names.length; turn++) {
      const name = names[(turn + round) % names.length]!;
      const sample = await measurements[name]();
      const series: Record<string, number[]> = gathered[name];
      for (const [quantity, value] of Object.entries(sample)) {
        (series[quantity] ??= []).push(value);
      }
    }
  }
  return gathered;
}

/** `a` and `b` combined round by round. */
export function pairwise(
  a: Series,
  b: Series,
  combine: (a: number, b: number) => number,
): Series {
  return a.slice(0, b.length).map((value, round) => combine(value, b[round]!));
}
