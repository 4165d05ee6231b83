// protobuf-es service descriptors -> grpc-js service definitions, shared by server and client.
// Knows messages and their bytes; must not import what only a server needs.
import {
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageShape,
} from "@bufbuild/protobuf";
import type { GenService, GenServiceMethods } from "@bufbuild/protobuf/codegenv2";
import type { MethodDefinition } from "@grpc/grpc-js";
import {
  FileChunkSchema,
  FileSystemService,
  OutputChunkSchema,
  ProcessService,
  WriteFileRequestSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import {
  encodeByReflection,
  type Encoded,
  encodeFileChunk,
  encodeOutputChunk,
  encodeWriteFileRequest,
} from "./bytes_codec.ts";

/** A grpc-js service definition whose methods keep the message types of the protobuf descriptor. */
export type ServiceDefinitionOf<T extends GenServiceMethods> = {
  readonly [M in keyof T]: MethodDefinition<
    MessageShape<T[M]["input"]>,
    MessageShape<T[M]["output"]>
  >;
};

/** How one message type becomes bytes and back. */
export interface Codec<T> {
  serialize(message: T): Encoded;
  deserialize(bytes: Uint8Array): T;
}

/** Messages that carry bytes have an encoder of their own. */
const FAST_ENCODERS: ReadonlyMap<DescMessage, (message: never) => Encoded> = new Map<
  DescMessage,
  (message: never) => Encoded
>([
  [FileChunkSchema, encodeFileChunk],
  [OutputChunkSchema, encodeOutputChunk],
  [WriteFileRequestSchema, encodeWriteFileRequest],
]);

/** The codec of a message type. Decoded bytes fields are views of the input, which must not change. */
export function codecOf<D extends DescMessage>(schema: D): Codec<MessageShape<D>> {
  return {
    serialize: FAST_ENCODERS.get(schema) as Codec<MessageShape<D>>["serialize"] | undefined ??
      ((message) => encodeByReflection(schema, message)),
    deserialize: (bytes) => fromBinary(schema, bytes),
  };
}

function methodDefinition(
  method: DescMethod,
  serviceName: string,
): MethodDefinition<unknown, unknown> {
  const input = codecOf(method.input);
  const output = codecOf(method.output);
  return {
    path: `/${serviceName}/${method.name}`,
    originalName: method.localName,
    requestStream: method.methodKind === "client_streaming" ||
      method.methodKind === "bidi_streaming",
    responseStream: method.methodKind === "server_streaming" ||
      method.methodKind === "bidi_streaming",
    // A grpc-js server asks of an answer no more than `Encoded` has; requests are buffers.
    requestSerialize: input.serialize as (value: unknown) => Buffer,
    requestDeserialize: input.deserialize,
    responseSerialize: output.serialize as (value: unknown) => Buffer,
    responseDeserialize: output.deserialize,
  };
}

function serviceDefinition<T extends GenServiceMethods>(
  service: GenService<T>,
  serviceName: string = service.typeName,
): ServiceDefinitionOf<T> {
  return Object.fromEntries(
    service.methods.map((method) => [method.localName, methodDefinition(method, serviceName)]),
  ) as unknown as ServiceDefinitionOf<T>;
}

/** `ateenv.v1alpha.ProcessService` */
export const processServiceDefinition = serviceDefinition(ProcessService);
/** `ateenv.v1alpha.FileSystemService` */
export const fileSystemServiceDefinition = serviceDefinition(FileSystemService);
/** `grpc.health.v1.Health` */
export const healthServiceDefinition = serviceDefinition(Health);
/** `grpc.reflection.v1.ServerReflection` */
export const reflectionServiceDefinition = serviceDefinition(ServerReflection);
/** `grpc.reflection.v1alpha.ServerReflection`: the same bytes under the name that older clients ask for. */
export const reflectionAlphaServiceDefinition = serviceDefinition(
  ServerReflection,
  "grpc.reflection.v1alpha.ServerReflection",
);
