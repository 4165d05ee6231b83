// protobuf-es service descriptors -> grpc-js service definitions, shared by server and client.
// Knows messages and their bytes; must not import what only a server needs.
import {
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import type { GenService, GenServiceMethods } from "@bufbuild/protobuf/codegenv2";
import type { MethodDefinition } from "@grpc/grpc-js";
import { FileSystemService, ProcessService } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";

/** A grpc-js service definition whose methods keep the message types of the protobuf descriptor. */
export type ServiceDefinitionOf<T extends GenServiceMethods> = {
  readonly [M in keyof T]: MethodDefinition<
    MessageShape<T[M]["input"]>,
    MessageShape<T[M]["output"]>
  >;
};

/** How one message type becomes bytes and back. */
export interface Codec<T> {
  serialize(message: T): Buffer;
  deserialize(bytes: Uint8Array): T;
}

function reflectCodec<D extends DescMessage>(schema: D): Codec<MessageShape<D>> {
  return {
    serialize(message) {
      const bytes = toBinary(schema, message);
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    },
    deserialize: (bytes) => fromBinary(schema, bytes),
  };
}

function methodDefinition(method: DescMethod): MethodDefinition<unknown, unknown> {
  const input = reflectCodec(method.input);
  const output = reflectCodec(method.output);
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    originalName: method.localName,
    requestStream: method.methodKind === "client_streaming" ||
      method.methodKind === "bidi_streaming",
    responseStream: method.methodKind === "server_streaming" ||
      method.methodKind === "bidi_streaming",
    requestSerialize: input.serialize as (value: unknown) => Buffer,
    requestDeserialize: input.deserialize,
    responseSerialize: output.serialize as (value: unknown) => Buffer,
    responseDeserialize: output.deserialize,
  };
}

function serviceDefinition<T extends GenServiceMethods>(
  service: GenService<T>,
): ServiceDefinitionOf<T> {
  return Object.fromEntries(
    service.methods.map((method) => [method.localName, methodDefinition(method)]),
  ) as unknown as ServiceDefinitionOf<T>;
}

/** `ateenv.v1alpha.ProcessService` */
export const processServiceDefinition = serviceDefinition(ProcessService);
/** `ateenv.v1alpha.FileSystemService` */
export const fileSystemServiceDefinition = serviceDefinition(FileSystemService);
/** `grpc.health.v1.Health` */
export const healthServiceDefinition = serviceDefinition(Health);
