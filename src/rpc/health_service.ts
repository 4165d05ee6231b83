// grpc.health.v1: whether the agent, or one of its services, takes calls.
// Knows no service but by its name.
import { create } from "@bufbuild/protobuf";
import type { UntypedServiceImplementation } from "@grpc/grpc-js";
import {
  type HealthCheckRequest,
  type HealthCheckResponse,
  HealthCheckResponse_ServingStatus as ServingStatus,
  HealthCheckResponseSchema,
} from "../../gen/grpc/health/v1/health_pb.ts";
import { AgentError } from "../errors.ts";
import { serverStreaming, unary } from "../wire/server_streams.ts";

/** The health of the whole agent (service name "") and of each named service. */
export class Health {
  readonly #services: ReadonlySet<string>;
  readonly #waiters = new Set<() => void>();
  #status = ServingStatus.SERVING;

  constructor(services: readonly string[]) {
    this.#services = new Set(["", ...services]);
  }

  /** From now on nothing is served. Watchers are told; their streams end with the connections. */
  drain(): void {
    this.#status = ServingStatus.NOT_SERVING;
    for (const wake of this.#waiters) wake();
  }

  /** The status of `service`; SERVICE_UNKNOWN where there is none of that name. */
  statusOf(service: string): ServingStatus {
    return this.#services.has(service) ? this.#status : ServingStatus.SERVICE_UNKNOWN;
  }

  /** For grpc-js. */
  implementation(): UntypedServiceImplementation {
    return {
      check: unary(({ service }: HealthCheckRequest) => {
        if (!this.#services.has(service)) throw new AgentError("not-found", "unknown service");
        return this.#answer(service);
      }),
      watch: serverStreaming(({ service }: HealthCheckRequest, { signal }) =>
        this.#watch(service, signal)
      ),
    };
  }

  #answer(service: string): HealthCheckResponse {
    return create(HealthCheckResponseSchema, { status: this.statusOf(service) });
  }

  /** Each change once; ends with the call, or at the drain, so that a watcher holds no connection open. */
  async *#watch(service: string, signal: AbortSignal): AsyncGenerator<HealthCheckResponse> {
    yield this.#answer(service);
    if (this.#status === ServingStatus.NOT_SERVING) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        this.#waiters.delete(done);
        signal.removeEventListener("abort", done);
        resolve();
      };
      this.#waiters.add(done);
      signal.addEventListener("abort", done);
      if (signal.aborted) done();
    });
    if (!signal.aborted && this.#services.has(service)) yield this.#answer(service);
  }
}
