import { assert, assertEquals } from "@std/assert";
import { create, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import {
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
} from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { Reflection } from "../../../src/rpc/reflection_service.ts";

/** grpc-js reads variables and the kernel's name when it is imported. */
const permissions = { env: true, sys: true, read: true } as const;

const SERVICES = ["ateenv.v1alpha.ProcessService", "grpc.health.v1.Health"];

function ask(question: ServerReflectionRequest["messageRequest"]) {
  const request = create(ServerReflectionRequestSchema, { host: "h", messageRequest: question });
  const answer = new Reflection(SERVICES).answer(request);
  assertEquals([answer.validHost, answer.originalRequest], ["h", request]);
  return answer.messageResponse;
}

/** Names of the files in the answer; the error code where it is one. */
function filesFor(symbol: string): string[] | number {
  const answer = ask({ case: "fileContainingSymbol", value: symbol });
  if (answer.case === "errorResponse") return answer.value.errorCode;
  assert(answer.case === "fileDescriptorResponse");
  return answer.value.fileDescriptorProto.map((bytes) =>
    fromBinary(FileDescriptorProtoSchema, bytes).name
  );
}

Deno.test("reflection lists the services that are served", { permissions }, () => {
  const answer = ask({ case: "listServices", value: "" });
  assert(answer.case === "listServicesResponse");
  assertEquals(answer.value.service.map(({ name }) => name), SERVICES);
});

Deno.test("reflection finds every kind of symbol, with the imports", { permissions }, () => {
  const guest = ["ateenv/v1alpha/guest.proto", "google/protobuf/timestamp.proto"];
  for (
    const symbol of [
      "ateenv.v1alpha.ProcessService",
      "ateenv.v1alpha.ProcessService.GetProcess",
      "ateenv.v1alpha.Process",
      "ateenv.v1alpha.Process.exit_code",
      "ateenv.v1alpha.OutputSource",
    ]
  ) {
    assertEquals(filesFor(symbol), guest, symbol);
  }
  assertEquals(filesFor("google.protobuf.Timestamp"), ["google/protobuf/timestamp.proto"]);
  const byName = ask({ case: "fileByFilename", value: "grpc/health/v1/health.proto" });
  assertEquals(byName.case, "fileDescriptorResponse");
});

Deno.test("what reflection does not know is NOT_FOUND, as an answer", { permissions }, () => {
  for (
    const symbol of ["", "no.Such", "ateenv.v1alpha.Process.no", "ateenv.v1alpha.ProcessService.No"]
  ) {
    assertEquals(filesFor(symbol), 5, symbol);
  }
  assertEquals(ask({ case: "fileByFilename", value: "x.proto" }).case, "errorResponse");
  assertEquals(ask({ case: undefined }).case, "errorResponse");
});
