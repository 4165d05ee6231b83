// grpc.reflection.v1 and v1alpha: what grpcurl and the like ask to learn the services and their messages.
// Answers from the descriptors of the generated code; knows no service but by those.
import { create, createRegistry, type DescFile, type Registry, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { UntypedServiceImplementation } from "@grpc/grpc-js";
import { file_ateenv_v1alpha_guest } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { file_grpc_health_v1_health } from "../../gen/grpc/health/v1/health_pb.ts";
import {
  file_grpc_reflection_v1_reflection,
  type ServerReflectionRequest,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { file_grpc_reflection_v1alpha_reflection } from "../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { AgentError } from "../errors.ts";
import { bidiStreaming } from "../wire/server_streams.ts";
import { KIND_TO_STATUS } from "../wire/status.ts";

type Answer = ServerReflectionResponse["messageResponse"];

/** Every file with something that can be asked about; what they import comes with them. */
const FILES = [
  file_ateenv_v1alpha_guest,
  file_grpc_health_v1_health,
  file_grpc_reflection_v1_reflection,
  file_grpc_reflection_v1alpha_reflection,
];

/** Answers questions about the services of these names, and about their messages. */
export class Reflection {
  readonly #services: readonly string[];
  readonly #files = new Map<string, DescFile>();
  readonly #registry: Registry;

  constructor(services: readonly string[]) {
    this.#services = services;
    for (const file of FILES) this.#add(file);
    this.#registry = createRegistry(...this.#files.values());
  }

  /** For grpc-js. The messages of v1alpha are those of v1 but for their package. */
  implementation(): UntypedServiceImplementation {
    return {
      serverReflectionInfo: bidiStreaming((requests: AsyncIterable<ServerReflectionRequest>) =>
        this.#answerAll(requests)
      ),
    };
  }

  /** The answer to one question; an error is an answer too. */
  answer(request: ServerReflectionRequest): ServerReflectionResponse {
    let messageResponse: Answer;
    try {
      messageResponse = this.#look(request.messageRequest);
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      messageResponse = {
        case: "errorResponse",
        value: {
          $typeName: "grpc.reflection.v1.ErrorResponse",
          errorCode: KIND_TO_STATUS[error.kind],
          errorMessage: error.message,
        },
      };
    }
    return create(ServerReflectionResponseSchema, {
      validHost: request.host,
      originalRequest: request,
      messageResponse,
    });
  }

  async *#answerAll(
    requests: AsyncIterable<ServerReflectionRequest>,
  ): AsyncGenerator<ServerReflectionResponse> {
    for await (const request of requests) yield this.answer(request);
  }

  #add(file: DescFile): void {
    const name = file.proto.name;
    if (this.#files.has(name)) return;
    for (const dependency of file.dependencies) this.#add(dependency);
    this.#files.set(name, file);
  }

  #look(question: ServerReflectionRequest["messageRequest"]): Answer {
    switch (question.case) {
      case "listServices":
        return {
          case: "listServicesResponse",
          value: {
            $typeName: "grpc.reflection.v1.ListServiceResponse",
            service: this.#services.map((name) => ({
              $typeName: "grpc.reflection.v1.ServiceResponse",
              name,
            })),
          },
        };
      case "fileByFilename":
        return this.#fileAnswer(this.#files.get(question.value), question.value);
      case "fileContainingSymbol":
        return this.#fileAnswer(this.#fileOf(question.value), question.value);
      case "fileContainingExtension":
        throw notFound(`extension ${question.value.extensionNumber}`);
      case "allExtensionNumbersOfType":
        if (this.#registry.getMessage(question.value) === undefined) throw notFound(question.value);
        return {
          case: "allExtensionNumbersResponse",
          value: {
            $typeName: "grpc.reflection.v1.ExtensionNumberResponse",
            baseTypeName: question.value,
            extensionNumber: [],
          },
        };
      default:
        throw new AgentError("invalid-argument", "empty reflection request");
    }
  }

  /** A symbol is a message, enum or service, or a method, field or value one level below one. */
  #fileOf(symbol: string): DescFile | undefined {
    const found = this.#registry.get(symbol);
    if (found !== undefined) return found.file;
    const parent = this.#registry.get(symbol.slice(0, Math.max(0, symbol.lastIndexOf("."))));
    const name = symbol.slice(symbol.lastIndexOf(".") + 1);
    switch (parent?.kind) {
      case "service":
        return parent.methods.some((method) => method.name === name) ? parent.file : undefined;
      case "message":
        return parent.fields.some((field) => field.name === name) ? parent.file : undefined;
      default:
        return undefined;
    }
  }

  /** The file and what it imports: clients that ask for one need the others next. */
  #fileAnswer(file: DescFile | undefined, asked: string): Answer {
    if (file === undefined) throw notFound(asked);
    const files = new Set<DescFile>();
    const collect = (each: DescFile) => {
      files.add(each);
      for (const dependency of each.dependencies) {
        if (!files.has(dependency)) collect(dependency);
      }
    };
    collect(file);
    return {
      case: "fileDescriptorResponse",
      value: {
        $typeName: "grpc.reflection.v1.FileDescriptorResponse",
        fileDescriptorProto: [...files].map(({ proto }) =>
          toBinary(FileDescriptorProtoSchema, proto)
        ),
      },
    };
  }
}

function notFound(what: string): AgentError {
  return new AgentError("not-found", `${what} not found`);
}
