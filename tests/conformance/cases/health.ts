// grpc.health.v1 and reflection.
import { Buffer } from "node:buffer";
import { assert, assertEquals } from "@std/assert";
import { create } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import {
  HealthCheckRequestSchema,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "../../../gen/grpc/health/v1/health_pb.ts";
import { healthServiceDefinition } from "../../../src/wire/definitions.ts";
import { type AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase } from "../contract_case.ts";

const SERVICES = ["ateenv.v1alpha.ProcessService", "ateenv.v1alpha.FileSystemService"];

/** Asks for the health of one service, or of the whole server ("").  */
export async function checkHealth(api: AgentApi, service: string): Promise<ServingStatus> {
  const request = create(HealthCheckRequestSchema, { service });
  return (await api.unary(healthServiceDefinition.check, request)).status;
}

/** A watch of the health of one service. */
export function watchHealth(api: AgentApi, service: string) {
  const request = create(HealthCheckRequestSchema, { service });
  const { call } = api.stream(healthServiceDefinition.watch, request);
  const answers = call[Symbol.asyncIterator]();
  return {
    next: async () => (await answers.next()).value?.status as ServingStatus | undefined,
    cancel: () => call.cancel(),
  };
}

const encoder = new TextEncoder();

/** One question to the reflection service; the answer as bytes: field 7 lists, 4 finds a symbol. */
function reflect(api: AgentApi, version: string, field: number, text: string): Promise<Uint8Array> {
  const bytes = encoder.encode(text);
  const request = new Uint8Array([field << 3 | 2, bytes.length, ...bytes]);
  const same = (value: Uint8Array) => Buffer.from(value);
  const call = api.client.makeBidiStreamRequest(
    `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`,
    same,
    same,
  );
  return new Promise((resolve, reject) => {
    let answer: Uint8Array | undefined;
    call.on("data", (value: Uint8Array) => {
      answer ??= value;
      call.end();
    });
    call.on("error", reject);
    call.on("end", () => answer === undefined ? undefined : resolve(answer));
    call.write(request);
  });
}

export const healthCases: readonly ContractCase[] = [
  {
    id: "health.check",
    line: "gRPC health (grpc.health.v1) is served: overall and per service",
    async run({ api }) {
      for (const service of ["", ...SERVICES]) {
        assertEquals(await checkHealth(api, service), ServingStatus.SERVING, service);
      }
      await rejectsWith(checkHealth(api, "no.such.Service"), status.NOT_FOUND);
    },
  },
  {
    id: "health.watch",
    line: "... with Watch; an unknown service is SERVICE_UNKNOWN",
    async run({ api }) {
      for (const service of ["", ...SERVICES]) {
        const watch = watchHealth(api, service);
        assertEquals(await watch.next(), ServingStatus.SERVING);
        watch.cancel();
      }
      const watch = watchHealth(api, "no.such.Service");
      assertEquals(await watch.next(), ServingStatus.SERVICE_UNKNOWN);
      watch.cancel();
    },
  },
  {
    id: "reflection.list",
    line: "reflection (v1, v1alpha) is served: lists every service",
    async run({ api }) {
      for (const version of ["v1", "v1alpha"]) {
        const names = new TextDecoder().decode(await reflect(api, version, 7, ""));
        for (const service of [...SERVICES, "grpc.health.v1.Health"]) {
          assert(names.includes(service), `${version} does not list ${service}`);
        }
      }
    },
  },
  {
    id: "reflection.symbol",
    line: "... and describes every symbol",
    async run({ api }) {
      for (const version of ["v1", "v1alpha"]) {
        for (const symbol of [...SERVICES, "ateenv.v1alpha.Process", "google.protobuf.Timestamp"]) {
          const file = new TextDecoder().decode(await reflect(api, version, 4, symbol));
          assert(file.includes(symbol.split(".").pop()!), `${version} does not describe ${symbol}`);
        }
      }
    },
  },
];
