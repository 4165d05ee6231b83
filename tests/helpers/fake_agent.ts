// An agent in memory, over real grpc-js: for faults that a real agent cannot be made to show.
// Must not import the server's rooms.
import { Buffer } from "node:buffer";
import { create } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import {
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  status,
} from "@grpc/grpc-js";
import {
  FileChunkSchema,
  KillProcessResponseSchema,
  OutputChunkSchema,
  OutputSource,
  ProcessSchema,
  ProcessStatus,
  StartProcessResponseSchema,
  type StreamProcessOutputsRequest,
  type WriteFileRequest,
  WriteFileResponseSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { HealthCheckResponseSchema } from "../../gen/grpc/health/v1/health_pb.ts";
import {
  fileSystemServiceDefinition,
  healthServiceDefinition,
  processServiceDefinition,
} from "../../src/wire/definitions.ts";

/** A process as the test wants it to be seen. */
export interface FakeProcess {
  stdout: Uint8Array;
  stderr: Uint8Array;
  status: ProcessStatus;
  exitCode: number;
}

/** What a call does instead of what it should. */
export interface Fault {
  readonly code: status;
  readonly details?: string;
  readonly trailers?: Readonly<Record<string, string>>;
  /** Bytes that a stream sends before. */
  readonly afterBytes?: number;
}

/** An agent in memory. */
export interface FakeAgent extends AsyncDisposable {
  readonly address: string;
  readonly files: Map<string, Uint8Array>;
  readonly processes: Map<string, FakeProcess>;
  /** Calls so far, by method. */
  readonly calls: Map<string, number>;
  /** The authorization header of the last call. */
  lastAuthorization: string | undefined;
  /** Sent with the answer of a health check. */
  version: string | undefined;
  /** Asked at every call; `count` is 1 for the first of its method. */
  fault: (method: string, count: number) => Fault | undefined;
  /** Waited for at every call, before anything is done. */
  gate: (method: string, count: number) => Promise<void>;
  /** Resolves once a method has been called. */
  waitCall(method: string): Promise<void>;
}

const CHUNK_BYTES = 1000;

/** Starts one on a free port of 127.0.0.1. */
export async function startFakeAgent(): Promise<FakeAgent> {
  const server = new Server({ "grpc-node.flow_control_window": 8 * 1024 * 1024 });
  const agent = {
    files: new Map<string, Uint8Array>(),
    processes: new Map<string, FakeProcess>(),
    calls: new Map<string, number>(),
    lastAuthorization: undefined as string | undefined,
    version: undefined as string | undefined,
    fault: (_method: string, _count: number): Fault | undefined => undefined,
    gate: (_method: string, _count: number): Promise<void> => Promise.resolve(),
  };

  const callers = new Map<string, () => void>();
  const enter = async (method: string, metadata: Metadata): Promise<Fault | undefined> => {
    const count = (agent.calls.get(method) ?? 0) + 1;
    agent.calls.set(method, count);
    callers.get(method)?.();
    agent.lastAuthorization = metadata.get("authorization")[0]?.toString();
    await agent.gate(method, count);
    return agent.fault(method, count);
  };
  const toError = (fault: Fault) => {
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(fault.trailers ?? {})) metadata.set(name, value);
    return { code: fault.code, details: fault.details ?? "made to fail", metadata };
  };
  const notFound = (what: string) => ({ code: status.NOT_FOUND, details: `${what} not found` });
  const unary =
    // deno-lint-ignore no-explicit-any
    (method: string, answer: (request: any) => unknown) =>
    // deno-lint-ignore no-explicit-any
    async (call: ServerUnaryCall<any, any>, done: (error: any, value?: any) => void) => {
      const fault = await enter(method, call.metadata);
      if (fault !== undefined) return done(toError(fault));
      const result = answer(call.request);
      if (result === undefined) done(notFound(`process "${call.request.processId}"`));
      else done(null, result);
    };
  const send = (
    // deno-lint-ignore no-explicit-any
    call: ServerWritableStream<any, any>,
    // deno-lint-ignore no-explicit-any
    messages: readonly { bytes: number; message: any }[],
    fault: Fault | undefined,
  ) => {
    let left = fault === undefined ? Infinity : fault.afterBytes ?? 0;
    for (const { bytes, message } of messages) {
      if (left < bytes) break;
      left -= bytes;
      call.write(message);
    }
    if (fault === undefined) call.end();
    else call.emit("error", toError(fault));
  };

  let nextId = 1;
  server.addService(processServiceDefinition, {
    startProcess: unary("startProcess", ({ command }) => {
      const processId = `fake-${nextId++}`;
      agent.processes.set(processId, {
        stdout: new TextEncoder().encode(command.join(" ") + "\n"),
        stderr: new Uint8Array(),
        status: ProcessStatus.COMPLETED,
        exitCode: 0,
      });
      return create(StartProcessResponseSchema, { processId });
    }),
    getProcess: unary("getProcess", ({ processId }) => {
      const process = agent.processes.get(processId);
      if (process === undefined) return undefined;
      const { status, exitCode } = process;
      return create(ProcessSchema, { processId, status, exitCode, startedAt: timestampNow() });
    }),
    killProcess: unary("killProcess", ({ processId }) => {
      const process = agent.processes.get(processId);
      if (process === undefined) return undefined;
      if (process.status === ProcessStatus.RUNNING) {
        process.status = ProcessStatus.TERMINATED;
        process.exitCode = 137;
      }
      return create(KillProcessResponseSchema, { exitCode: process.exitCode });
    }),
    async streamProcessOutputs(call: ServerWritableStream<StreamProcessOutputsRequest, unknown>) {
      const fault = await enter("streamProcessOutputs", call.metadata);
      const process = agent.processes.get(call.request.processId);
      if (process === undefined) return call.emit("error", notFound("process"));
      const pieces = (source: OutputSource, bytes: Uint8Array, offset: bigint) =>
        chunksOf(bytes.subarray(Number(offset))).map((data) => ({
          bytes: data.length,
          message: create(OutputChunkSchema, { source, data }),
        }));
      const { stdoutOffset, stderrOffset } = call.request;
      send(call, [
        ...pieces(OutputSource.STDOUT, process.stdout, stdoutOffset),
        ...pieces(OutputSource.STDERR, process.stderr, stderrOffset),
      ], fault);
    },
    // deno-lint-ignore no-explicit-any
  } as any);
  server.addService(fileSystemServiceDefinition, {
    async readFile(call: ServerWritableStream<{ path: string }, unknown>) {
      const fault = await enter("readFile", call.metadata);
      const content = agent.files.get(call.request.path);
      if (content === undefined) return call.emit("error", notFound(`file "${call.request.path}"`));
      send(
        call,
        chunksOf(content).map((data) => ({
          bytes: data.length,
          message: create(FileChunkSchema, { data }),
        })),
        fault,
      );
    },
    // deno-lint-ignore no-explicit-any
    async writeFile(call: any, done: any) {
      const parts: Uint8Array[] = [];
      let path = "";
      const fault = await enter("writeFile", call.metadata);
      if (fault !== undefined && fault.afterBytes === undefined) return done(toError(fault));
      let received = 0;
      try {
        for await (const message of call as AsyncIterable<WriteFileRequest>) {
          if (message.path !== "") path = message.path;
          parts.push(message.chunk);
          received += message.chunk.length;
          if (fault !== undefined && received >= fault.afterBytes!) return done(toError(fault));
        }
      } catch {
        // The client has cancelled.
        return;
      }
      const content = new Uint8Array(Buffer.concat(parts));
      agent.files.set(path, content);
      done(null, create(WriteFileResponseSchema, { bytesWritten: BigInt(content.length) }));
    },
    // deno-lint-ignore no-explicit-any
  } as any);

  server.addService(healthServiceDefinition, {
    // deno-lint-ignore no-explicit-any
    check(call: ServerUnaryCall<any, any>, done: (error: any, value?: any) => void) {
      const metadata = new Metadata();
      if (agent.version !== undefined) metadata.set("ateenv-version", agent.version);
      call.sendMetadata(metadata);
      done(null, create(HealthCheckResponseSchema, { status: 1 }));
    },
    // deno-lint-ignore no-explicit-any
  } as any);

  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync(
      "127.0.0.1:0",
      ServerCredentials.createInsecure(),
      (error, port) => error ? reject(error) : resolve(port),
    )
  );
  return Object.assign(agent, {
    address: `127.0.0.1:${port}`,
    async waitCall(method: string) {
      if (agent.calls.has(method)) return;
      await new Promise<void>((resolve) => callers.set(method, resolve));
    },
    async [Symbol.asyncDispose]() {
      await new Promise<void>((resolve) => {
        server.tryShutdown(() => resolve());
        server.forceShutdown();
      });
    },
  });
}

function chunksOf(bytes: Uint8Array): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  for (let offset = 0; offset < bytes.length; offset += CHUNK_BYTES) {
    chunks.push(bytes.subarray(offset, offset + CHUNK_BYTES));
  }
  return chunks;
}
