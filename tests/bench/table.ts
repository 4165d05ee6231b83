// Rows of the table and how they are printed: Markdown for people, JSON for programs.
// Must not measure anything.
import { pairwise, type Series, summarize, type Summary } from "./statistics.ts";

/** One line of the table. */
export interface Row {
  readonly figure: string;
  readonly unit: string;
  readonly agent: Summary;
  readonly floor?: { readonly name: string; readonly value: Summary };
  /** The agent against the floor, paired round by round. */
  readonly comparison?: { readonly kind: "ratio" | "difference"; readonly value: Summary };
  readonly target?: { readonly text: string; readonly met: boolean };
}

interface Against {
  readonly name: string;
  readonly series: Series;
}

/** What is wanted of a row: of the value itself, of its ratio to the floor, or of its difference. */
export interface Wanted {
  readonly of: "value" | "ratio" | "difference";
  readonly atLeast?: number;
  readonly atMost?: number;
}

/** Makes a row from the agent's series, the floor's and what is wanted. */
export function makeRow(
  figure: string,
  unit: string,
  agent: Series,
  floor?: Against,
  wanted?: Wanted,
): Row {
  const kind = wanted?.of === "difference" ? "difference" : "ratio";
  const compared = floor === undefined ? undefined : summarize(
    pairwise(agent, floor.series, (a, b) => kind === "ratio" ? a / b : a - b),
  );
  const value = summarize(agent);
  const judged = wanted?.of === "value" ? value.median : compared?.median ?? NaN;
  return {
    figure,
    unit,
    agent: value,
    ...(floor && { floor: { name: floor.name, value: summarize(floor.series) } }),
    ...(compared && { comparison: { kind, value: compared } }),
    ...(wanted && {
      target: {
        text: targetText(wanted, unit),
        met: judged >= (wanted.atLeast ?? -Infinity) && judged <= (wanted.atMost ?? Infinity),
      },
    }),
  };
}

function targetText({ of, atLeast, atMost }: Wanted, unit: string): string {
  const [sign, bound] = atLeast === undefined ? ["<=", atMost] : [">=", atLeast];
  switch (of) {
    case "ratio":
      return `${sign} ${bound} x`;
    case "difference":
      return `${sign} floor + ${bound} ${unit}`;
    case "value":
      return `${sign} ${bound} ${unit}`;
  }
}

/** Three significant digits, no exponent. */
export function format(value: number): string {
  if (!Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toString();
  return value.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

function withSpread({ median, min, max }: Summary): string {
  return min === max ? format(median) : `${format(median)} (${format(min)}..${format(max)})`;
}

/** The rows as a Markdown table; medians, with the lowest and highest round in brackets. */
export function toMarkdown(rows: readonly Row[]): string {
  const lines = rows.map(({ figure, unit, agent, floor, comparison, target }) => [
    figure,
    unit,
    withSpread(agent),
    floor ? `${withSpread(floor.value)} ${floor.name}` : "",
    comparison
      ? `${comparison.kind === "ratio" ? "x" : "+"} ${format(comparison.value.median)}`
      : "",
    target ? `${target.met ? "met" : "MISSED"}: ${target.text}` : "",
  ]);
  return [
    ["figure", "unit", "agent", "floor", "agent to floor", "target"],
    ["---", "---", "---", "---", "---", "---"],
    ...lines,
  ].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}
