// ProcessService of ateenv.v1alpha: validates, calls the process table, converts.
// Must not know how processes work; must not touch the OS.
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { UntypedServiceImplementation } from "@grpc/grpc-js";
import {
  type GetProcessRequest,
  type KillProcessRequest,
  KillProcessResponseSchema,
  type OutputChunk,
  OutputChunkSchema,
  OutputSource,
  type Process,
  ProcessSchema,
  ProcessStatus,
  type StartProcessRequest,
  StartProcessResponseSchema,
  type StreamProcessOutputsRequest,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { AgentError } from "../errors.ts";
import type {
  OutputSource as Source,
  ProcessInfo,
  ProcessStatus as Status,
  ProcessTable,
} from "../process/process_table.ts";
import { type CallContext, serverStreaming, unary } from "../wire/server_streams.ts";

const STATUS: Readonly<Record<Status, ProcessStatus>> = {
  running: ProcessStatus.RUNNING,
  completed: ProcessStatus.COMPLETED,
  failed: ProcessStatus.FAILED,
  terminated: ProcessStatus.TERMINATED,
};

const SOURCE: Readonly<Record<Source, OutputSource>> = {
  stdout: OutputSource.STDOUT,
  stderr: OutputSource.STDERR,
};

/** An int64 offset as a number: no stream of bytes gets beyond 2^53. */
function toOffset(offset: bigint): number {
  if (offset < 0n) throw new AgentError("invalid-argument", "offsets cannot be negative");
  return offset > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(offset);
}

function toMessage(info: ProcessInfo): Process {
  const message = create(ProcessSchema, {
    processId: info.processId,
    status: STATUS[info.status],
    exitCode: info.exitCode,
    startedAt: timestampFromDate(info.startedAt),
  });
  if (info.finishedAt !== undefined) message.finishedAt = timestampFromDate(info.finishedAt);
  return message;
}

/** The handlers of `ateenv.v1alpha.ProcessService` over `processes`. */
export function processHandlers(processes: ProcessTable): UntypedServiceImplementation {
  async function startProcess(request: StartProcessRequest, context: CallContext) {
    const info = await processes.start(
      { command: request.command, cwd: request.cwd, env: request.env },
      context.signal,
    );
    // Nobody else knows the id: a process whose id was not delivered is of no use to anyone.
    context.onUnanswered(() => processes.discard(info.processId));
    return create(StartProcessResponseSchema, { processId: info.processId });
  }

  async function* streamProcessOutputs(
    request: StreamProcessOutputsRequest,
    context: CallContext,
  ): AsyncGenerator<OutputChunk> {
    const pieces = processes.outputs({
      processId: request.processId,
      stdoutOffset: toOffset(request.stdoutOffset),
      stderrOffset: toOffset(request.stderrOffset),
      follow: request.follow,
    }, context.signal);
    for await (const { source, data } of pieces) {
      yield create(OutputChunkSchema, { source: SOURCE[source], data });
    }
  }

  return {
    startProcess: unary(startProcess),
    getProcess: unary((request: GetProcessRequest) => toMessage(processes.get(request.processId))),
    streamProcessOutputs: serverStreaming(
      streamProcessOutputs,
      (chunk: OutputChunk) => chunk.data.length,
    ),
    killProcess: unary(async (request: KillProcessRequest, context: CallContext) =>
      create(KillProcessResponseSchema, {
        exitCode: await processes.kill(request.processId, context.signal),
      })
    ),
  };
}
