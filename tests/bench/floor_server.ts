// The floor: the least a grpc-js server on this Deno can do. Empty calls, and bytes from memory in
// 64 KiB messages that protobuf-es encodes. Shares nothing with the agent but the generated messages and the guard.
import "../../src/wire/http2_guard.ts";
import { once } from "node:events";
import { create, type DescMethod, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import {
  type sendUnaryData,
  Server,
  ServerCredentials,
  type ServerReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
} from "@grpc/grpc-js";
import {
  type FileChunk,
  FileChunkSchema,
  FileSystemService,
  type GetProcessRequest,
  type Process,
  ProcessSchema,
  ProcessService,
  type ReadFileRequest,
  type WriteFileRequest,
  type WriteFileResponse,
  WriteFileResponseSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";

const MESSAGE_BYTES = 64 * 1024;

function definition(method: DescMethod) {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: method.methodKind === "client_streaming",
    responseStream: method.methodKind === "server_streaming",
    requestSerialize: (message: Message) => Buffer.from(toBinary(method.input, message)),
    requestDeserialize: (bytes: Uint8Array) => fromBinary(method.input, bytes),
    responseSerialize: (message: Message) => {
      const bytes = toBinary(method.output, message);
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    },
    responseDeserialize: (bytes: Uint8Array) => fromBinary(method.output, bytes),
  };
}

/** `path` is the number of bytes wanted. */
async function readFile(call: ServerWritableStream<ReadFileRequest, FileChunk>): Promise<void> {
  const payload = new Uint8Array(MESSAGE_BYTES);
  for (let left = Number(call.request.path); left > 0 && !call.cancelled;) {
    const data = payload.subarray(0, Math.min(left, MESSAGE_BYTES));
    left -= data.length;
    if (!call.write(create(FileChunkSchema, { data }))) await once(call, "drain");
  }
  call.end();
}

function writeFile(
  call: ServerReadableStream<WriteFileRequest, WriteFileResponse>,
  answer: sendUnaryData<WriteFileResponse>,
): void {
  let bytes = 0;
  call.on("data", (message: WriteFileRequest) => bytes += message.chunk.length);
  call.on(
    "end",
    () => answer(null, create(WriteFileResponseSchema, { bytesWritten: BigInt(bytes) })),
  );
}

function getProcess(
  _call: ServerUnaryCall<GetProcessRequest, Process>,
  answer: sendUnaryData<Process>,
): void {
  answer(null, create(ProcessSchema));
}

const server = new Server();
server.addService({ getProcess: definition(ProcessService.method.getProcess) }, { getProcess });
server.addService({
  readFile: definition(FileSystemService.method.readFile),
  writeFile: definition(FileSystemService.method.writeFile),
}, { readFile, writeFile });
server.bindAsync(`127.0.0.1:${Deno.args[0]}`, ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
});
