// A server of the wire room with simple handlers in place of the domain: what tests of the port talk to.
// Must not import a room of the domain.
import { create } from "@bufbuild/protobuf";
import {
  type FileChunk,
  FileChunkSchema,
  type KillProcessRequest,
  KillProcessResponseSchema,
  ProcessSchema,
  type ReadFileRequest,
  type StartProcessRequest,
  StartProcessResponseSchema,
  type WriteFileRequest,
  WriteFileResponseSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { systemClock } from "../../src/clock.ts";
import { AgentError } from "../../src/errors.ts";
import { createLogger, type Logger } from "../../src/log.ts";
import { type AgentServer, createServer, type ServerOptions } from "../../src/rpc/server.ts";
import {
  fileSystemServiceDefinition,
  processServiceDefinition,
} from "../../src/wire/definitions.ts";
import { clientStreaming, serverStreaming, unary } from "../../src/wire/server_streams.ts";

/** What happened inside the handlers, for tests to look at. */
export interface EchoEvents {
  /** A handler has begun. */
  started?(name: string): void;
  /** The signal of a handler was aborted, for that reason. */
  aborted?(name: string, reason: unknown): void;
  /** A StartProcess answer could not be sent. */
  unanswered?(): void;
  /** ReadFile made so many bytes up to now. */
  produced?(bytes: number): void;
  /** WriteFile took so many bytes up to now; a promise holds it there. */
  consumed?(bytes: number): Promise<void> | void;
}

const PIECE = new Uint8Array(256 * 1024).fill(7);

/**
 * StartProcess answers with its first argument ("throw" throws, "wait" waits for the call's end, "refuse"
 * is OUT_OF_RANGE with a trailer, "lone" has half a surrogate pair in its message); KillProcess never
 * answers; ReadFile sends as many bytes as its path says; WriteFile answers with the bytes it got.
 */
export function startEchoServer(
  options: Partial<ServerOptions> = {},
  events: EchoEvents = {},
): Promise<AgentServer> {
  const forever = (name: string, signal: AbortSignal) =>
    new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => {
        events.aborted?.(name, signal.reason);
        reject(signal.reason);
      });
    });
  return createServer({
    listen: [{ hostname: "127.0.0.1", port: 0 }],
    auth: { mode: "none" },
    version: "1.2.3",
    clock: systemClock,
    log: silentLog,
    services: [
      {
        name: "ateenv.v1alpha.ProcessService",
        definition: processServiceDefinition,
        implementation: {
          startProcess: unary(async ({ command }: StartProcessRequest, context) => {
            events.started?.("startProcess");
            context.onUnanswered(() => events.unanswered?.());
            const [what = ""] = command;
            if (what === "throw") throw new TypeError("a secret detail");
            if (what === "lone") throw new AgentError("not-found", "half \ud800 of a pair");
            if (what === "refuse") {
              throw new AgentError("out-of-range", "offset 3 is gone, 100% ü", {
                details: { "ateenv-first-stdout-offset": "7" },
              });
            }
            if (what === "wait") await forever("startProcess", context.signal);
            return create(StartProcessResponseSchema, { processId: what });
          }),
          getProcess: unary(() => create(ProcessSchema, { processId: "p" })),
          killProcess: unary(async (_request: KillProcessRequest, { signal }) => {
            events.started?.("killProcess");
            await forever("killProcess", signal);
            return create(KillProcessResponseSchema);
          }),
        },
      },
      {
        name: "ateenv.v1alpha.FileSystemService",
        definition: fileSystemServiceDefinition,
        implementation: {
          readFile: serverStreaming(async function* (
            { path }: ReadFileRequest,
            { signal },
          ): AsyncGenerator<FileChunk> {
            events.started?.("readFile");
            signal.addEventListener("abort", () => events.aborted?.("readFile", signal.reason));
            for (let left = Number(path), made = 0; left > 0;) {
              const data = PIECE.subarray(0, Math.min(left, PIECE.length));
              left -= data.length;
              made += data.length;
              events.produced?.(made);
              yield create(FileChunkSchema, { data });
            }
          }, ({ data }) => data.length),
          writeFile: clientStreaming(
            async (requests: AsyncIterable<WriteFileRequest>, { signal }) => {
              events.started?.("writeFile");
              signal.addEventListener("abort", () => events.aborted?.("writeFile", signal.reason));
              let bytes = 0;
              for await (const { chunk } of requests) {
                bytes += chunk.length;
                await events.consumed?.(bytes);
              }
              return create(WriteFileResponseSchema, { bytesWritten: BigInt(bytes) });
            },
          ),
        },
      },
    ],
    ...options,
  });
}

/** A logger that keeps its lines in `lines`. */
export function memoryLog(lines: string[]): Logger {
  return createLogger("debug", (line) => lines.push(line));
}

const silentLog: Logger = createLogger("error", () => {});
