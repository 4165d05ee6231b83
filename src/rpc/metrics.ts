// Counters of calls and gauges of everything else, as Prometheus text (format 0.0.4).
// Must not import gRPC or a room: gauges come as callbacks.

/** Content type of {@linkcode Metrics.format}. */
export const METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** A value that is asked for when somebody looks. */
export interface Gauge {
  /** Full metric name, `ateenv_...`. */
  readonly name: string;
  readonly help: string;
  /** The value now; undefined leaves the metric out. */
  readonly read: () => number | undefined | Promise<number | undefined>;
}

const CODE_NAMES = [
  "OK",
  "CANCELLED",
  "UNKNOWN",
  "INVALID_ARGUMENT",
  "DEADLINE_EXCEEDED",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "PERMISSION_DENIED",
  "RESOURCE_EXHAUSTED",
  "FAILED_PRECONDITION",
  "ABORTED",
  "OUT_OF_RANGE",
  "UNIMPLEMENTED",
  "INTERNAL",
  "UNAVAILABLE",
  "DATA_LOSS",
  "UNAUTHENTICATED",
];

/** Name of a gRPC status code. */
export function codeName(code: number): string {
  return CODE_NAMES[code] ?? "UNKNOWN";
}

/** See the head of this file. */
export class Metrics {
  readonly #methods: ReadonlySet<string>;
  readonly #gauges: readonly Gauge[];
  /** `method` and `code` as they stand in the text -> calls. */
  readonly #calls = new Map<string, number>();
  #bytesIn = 0;
  #bytesOut = 0;

  /** `methods` are the paths that get a label of their own: what clients make up must not fill memory. */
  constructor(methods: readonly string[], gauges: readonly Gauge[]) {
    this.#methods = new Set(methods);
    this.#gauges = gauges;
  }

  /** Counts a finished call. */
  callFinished(call: { method: string; code: number; bytesIn: number; bytesOut: number }): void {
    const method = this.#methods.has(call.method) ? call.method : "unknown";
    const labels = `method="${method}",code="${codeName(call.code)}"`;
    this.#calls.set(labels, (this.#calls.get(labels) ?? 0) + 1);
    this.#bytesIn += call.bytesIn;
    this.#bytesOut += call.bytesOut;
  }

  /** The text that a scraper gets. A gauge that fails is left out. */
  async format(): Promise<string> {
    const lines = [
      "# HELP ateenv_calls_total Finished calls by method and status code.",
      "# TYPE ateenv_calls_total counter",
      ...[...this.#calls].map(([labels, count]) => `ateenv_calls_total{${labels}} ${count}`),
      "# HELP ateenv_received_bytes_total Bytes of request messages.",
      "# TYPE ateenv_received_bytes_total counter",
      `ateenv_received_bytes_total ${this.#bytesIn}`,
      "# HELP ateenv_sent_bytes_total Bytes of response messages.",
      "# TYPE ateenv_sent_bytes_total counter",
      `ateenv_sent_bytes_total ${this.#bytesOut}`,
    ];
    for (const { name, help, read } of this.#gauges) {
      let value: number | undefined;
      try {
        value = await read();
      } catch {
        continue;
      }
      if (value === undefined) continue;
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} gauge`, `${name} ${value}`);
    }
    return lines.join("\n") + "\n";
  }
}
