// OpenTelemetry of the port, through what Deno itself brings: one span and one measurement per call, gauges.
// Must not import gRPC or a room. What a client made up (paths, names, values) never gets in.
import type { Clock } from "../clock.ts";
import type { Gauge } from "./metrics.ts";

/** Options of {@linkcode openTelemetry}. */
export interface TelemetryOptions {
  readonly version: string;
  readonly clock: Clock;
  /** Paths that may be named: `/package.Service/Method`. All others are one `unknown`. */
  readonly methods: readonly string[];
  readonly gauges: readonly Gauge[];
}

/** What is told of a finished call. */
export interface ObservedCall {
  readonly method: string;
  readonly code: number;
  readonly durationMs: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly traceparent: string | undefined;
}

/** Takes note of a finished call. */
export type ObserveCall = (call: ObservedCall) => void;

/** Where @opentelemetry/api keeps its implementation. Deno puts there what OTEL_* have switched on. */
const REGISTRY = Symbol.for("opentelemetry.js.api.1");
/** Under which a context keeps its span, in @opentelemetry/api and in Deno. */
const SPAN_KEY = Symbol.for("OpenTelemetry Context Key SPAN");
const SPAN_KIND_SERVER = 1;
const SPAN_STATUS_ERROR = 2;

/** Faults of the server by OpenTelemetry's rules for gRPC; all other codes are the client's affair. */
const SERVER_FAULTS: ReadonlySet<number> = new Set([
  2, // UNKNOWN
  4, // DEADLINE_EXCEEDED
  12, // UNIMPLEMENTED
  13, // INTERNAL
  14, // UNAVAILABLE
  15, // DATA_LOSS
]);

const DURATION_BOUNDARIES_MS = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1e3, 2.5e3, 5e3, 1e4, 6e4];

/** The span that a `traceparent` header (W3C Trace Context) names; undefined where it names none. */
export function parseTraceparent(header: string | undefined) {
  const match = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/.exec(header ?? "");
  if (match === null) return undefined;
  const [, version, traceId = "", spanId = "", flags = "", rest] = match;
  if (version === "ff" || (version === "00" && rest !== undefined)) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true };
}

/**
 * Starts to export, where Deno was told to (`OTEL_DENO=true` and its companions, before the agent runs), and
 * gives a function that takes note of a call. Undefined where nothing is exported: then nothing is spent.
 */
export function openTelemetry(options: TelemetryOptions): ObserveCall | undefined {
  const on = (globalThis as Record<symbol, unknown>)[REGISTRY] as
    | { readonly metrics?: unknown }
    | undefined;
  if (on === undefined) return undefined;
  // Not asked for `trace`, which stands for spans that Deno makes of itself: start.sh has switched those off.
  const trace = createTracing(options);
  const measure = on.metrics === undefined ? undefined : createMetering(options);
  const attributesOf = new Map(options.methods.map((path) => [path, methodAttributes(path)]));
  const unknown = { "rpc.system": "grpc", "rpc.method": "unknown" };
  return (call) => {
    const known = attributesOf.get(call.method);
    const name = known === undefined ? "unknown" : call.method.slice(1);
    const attributes = { ...known ?? unknown, "rpc.grpc.status_code": call.code };
    trace(call, name, attributes);
    measure?.(call, attributes);
  };
}

function methodAttributes(path: string) {
  const [, service = "", method = ""] = path.split("/");
  return { "rpc.system": "grpc", "rpc.service": service, "rpc.method": method };
}

function createTracing({ version, clock }: TelemetryOptions) {
  const tracer = Deno.telemetry.tracerProvider.getTracer("ateenvd", version);
  return (call: ObservedCall, name: string, attributes: object) => {
    const parent = parseTraceparent(call.traceparent);
    const endMs = clock.wallTime().getTime();
    const span = tracer.startSpan(
      name,
      {
        kind: SPAN_KIND_SERVER,
        // The clock on the wall may have been set during the call; its duration stays true.
        startTime: endMs - call.durationMs,
        attributes: {
          ...attributes,
          "ateenv.received_bytes": call.bytesIn,
          "ateenv.sent_bytes": call.bytesOut,
        },
      },
      parent === undefined ? undefined : contextOf(parent),
    );
    if (SERVER_FAULTS.has(call.code)) span.setStatus({ code: SPAN_STATUS_ERROR });
    span.end(endMs);
  };
}

/** As much of a context as Deno looks at. */
function contextOf(spanContext: object) {
  const span = { spanContext: () => spanContext, isRecording: () => false };
  return { getValue: (key: symbol) => key === SPAN_KEY ? span : undefined };
}

function createMetering({ version, gauges }: TelemetryOptions) {
  const meter = Deno.telemetry.meterProvider.getMeter("ateenvd", version);
  for (const { name, help, read } of gauges) {
    meter.createObservableGauge(name, { description: help }).addCallback(
      async (result: { observe(value: number): void }) => {
        // What cannot be read now is left out, as in /metrics.
        const value = await Promise.try(read).catch(() => undefined);
        if (value !== undefined) result.observe(value);
      },
    );
  }
  const durations = meter.createHistogram("rpc.server.duration", {
    description: "Duration of finished calls.",
    unit: "ms",
    advice: { explicitBucketBoundaries: DURATION_BOUNDARIES_MS },
  });
  return (call: ObservedCall, attributes: object) => durations.record(call.durationMs, attributes);
}
