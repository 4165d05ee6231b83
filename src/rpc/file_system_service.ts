// FileSystemService of ateenv.v1alpha: validates, calls the workspace, converts.
// Must not know how files are found; must not touch the OS.
import { create } from "@bufbuild/protobuf";
import type { UntypedServiceImplementation } from "@grpc/grpc-js";
import {
  type FileChunk,
  FileChunkSchema,
  type ReadFileRequest,
  type WriteFileRequest,
  WriteFileResponseSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { type Clock, systemClock } from "../clock.ts";
import { AgentError } from "../errors.ts";
import { type CallContext, clientStreaming, serverStreaming } from "../wire/server_streams.ts";
import { type Transfer, Transfers } from "./transfers.ts";
import type { Workspace } from "../workspace/workspace.ts";

/** The content of an upload whose first message was taken already; a change of path is refused. */
async function* contentOf(
  first: WriteFileRequest,
  rest: AsyncIterator<WriteFileRequest>,
): AsyncGenerator<Uint8Array> {
  if (first.chunk.length > 0) yield first.chunk;
  for (let next = await rest.next(); !next.done; next = await rest.next()) {
    const { path, chunk } = next.value;
    if (path !== "" && path !== first.path) {
      throw new AgentError(
        "invalid-argument",
        `a later message names another path, ${JSON.stringify(path)}: ` +
          "send the path once, or the same one each time",
      );
    }
    if (chunk.length > 0) yield chunk;
  }
}

/** The same messages; each shows that the client is there. */
async function* noteMoves(
  requests: AsyncIterable<WriteFileRequest>,
  upload: Transfer,
): AsyncGenerator<WriteFileRequest> {
  for await (const request of requests) {
    upload.moved();
    yield request;
  }
}

/** The handlers of `ateenv.v1alpha.FileSystemService` over `workspace`. */
export function fileSystemHandlers(
  workspace: Workspace,
  clock: Clock = systemClock,
): UntypedServiceImplementation {
  const downloads = new Transfers(clock);
  const uploads = new Transfers(clock);

  async function* readFile(
    request: ReadFileRequest,
    context: CallContext,
  ): AsyncGenerator<FileChunk> {
    const { signal } = context;
    using download = await downloads.enter(signal, (reason) => context.abort(reason));
    for await (const data of workspace.readFile(request.path, signal)) {
      download.moved();
      yield create(FileChunkSchema, { data });
    }
  }

  async function writeFile(requests: AsyncIterable<WriteFileRequest>, context: CallContext) {
    const { signal } = context;
    // Before the first message is taken: what waits for its turn is the gate's to limit.
    using upload = await uploads.enter(signal, (reason) => context.abort(reason));
    const messages = noteMoves(requests, upload);
    const first = await messages.next();
    if (first.done) throw new AgentError("invalid-argument", "no file data received");
    const { path, mode } = first.value;
    const content = contentOf(first.value, messages);
    const bytes = await workspace.writeFile(path, mode, content, signal);
    return create(WriteFileResponseSchema, { bytesWritten: BigInt(bytes) });
  }

  return {
    readFile: serverStreaming(readFile, (chunk: FileChunk) => chunk.data.length),
    writeFile: clientStreaming(writeFile),
  };
}
