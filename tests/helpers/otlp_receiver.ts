// A collector on loopback that keeps what an agent exports over OTLP/HTTP.
// Must not import the agent's own code.

/** One attribute list of OTLP, as an object. */
export type Attributes = Readonly<Record<string, unknown>>;

/** A span, as much of it as tests look at. */
export interface Span {
  readonly name: string;
  readonly kind: number;
  readonly traceId: string;
  readonly parentSpanId: string;
  /** 0 unset, 2 error. */
  readonly status: number;
  readonly durationMs: number;
  readonly attributes: Attributes;
}

/** One data point of a metric, with the name of the metric. */
export interface Point {
  readonly name: string;
  readonly value: number | undefined;
  /** Measurements in a histogram. */
  readonly count: number | undefined;
  readonly attributes: Attributes;
}

/** What `http/json` carries, untyped as it is. */
// deno-lint-ignore no-explicit-any
type Json = any;

const decoder = new TextDecoder();

function attributesOf(list: Json): Attributes {
  return Object.fromEntries((list ?? []).map(({ key, value }: Json) => {
    const plain = value.stringValue ?? value.intValue ?? value.doubleValue ?? value.boolValue;
    return [key, value.intValue === undefined ? plain : Number(plain)];
  }));
}

/** See the head of this file. */
export class OtlpReceiver implements AsyncDisposable {
  readonly spans: Span[] = [];
  readonly points: Point[] = [];
  /** Everything that came: request lines, headers and bodies, in bytes. */
  readonly bodies: Uint8Array[] = [];
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  #arrived = Promise.withResolvers<void>();

  constructor() {
    this.#server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen() {} },
      (request) => this.#receive(request),
    );
  }

  /** Variables for an agent that exports to here, soon after anything happens. */
  environment(protocol: "http/json" | "http/protobuf" = "http/json"): Record<string, string> {
    return {
      OTEL_DENO: "true",
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${this.#server.addr.port}`,
      OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
      OTEL_BSP_SCHEDULE_DELAY: "50",
      OTEL_METRIC_EXPORT_INTERVAL: "100",
    };
  }

  /** Everything that came, as text: what must not be in there is searched here. */
  get text(): string {
    return this.bodies.map((body) => decoder.decode(body)).join("\n");
  }

  /** Waits until `find` finds something in what has come; it is asked again with every export. */
  async until<T>(find: (receiver: this) => T | undefined): Promise<T> {
    for (;;) {
      const { promise } = this.#arrived;
      const found = find(this);
      if (found !== undefined) return found;
      await promise;
    }
  }

  async #receive(request: Request): Promise<Response> {
    const body = new Uint8Array(await request.arrayBuffer());
    this.bodies.push(body);
    const type = request.headers.get("content-type") ?? "";
    if (type.includes("json")) this.#take(JSON.parse(decoder.decode(body)));
    const arrived = this.#arrived;
    this.#arrived = Promise.withResolvers();
    arrived.resolve();
    return new Response(type.includes("json") ? "{}" : null, { headers: { "content-type": type } });
  }

  #take(message: Json): void {
    for (const { scopeSpans } of message.resourceSpans ?? []) {
      for (const span of scopeSpans.flatMap(({ spans }: Json) => spans)) {
        this.spans.push({
          name: span.name,
          kind: span.kind,
          traceId: span.traceId,
          parentSpanId: span.parentSpanId,
          status: span.status?.code ?? 0,
          durationMs: Number(BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)) / 1e6,
          attributes: attributesOf(span.attributes),
        });
      }
    }
    for (const { scopeMetrics } of message.resourceMetrics ?? []) {
      for (const metric of scopeMetrics.flatMap(({ metrics }: Json) => metrics)) {
        const { dataPoints } = metric.gauge ?? metric.sum ?? metric.histogram;
        for (const point of dataPoints) {
          const value = point.asDouble ?? point.asInt;
          this.points.push({
            name: metric.name,
            value: value === undefined ? undefined : Number(value),
            count: point.count === undefined ? undefined : Number(point.count),
            attributes: attributesOf(point.attributes),
          });
        }
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }
}
