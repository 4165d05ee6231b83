// The six calls over bare grpc-js, as a client that knows nothing of this agent makes them.
// Must not import src/client/: what it finds must not depend on the product's own client.
// The guard is for this process: a Deno client of grpc-js dies by the GOAWAY of a stopping agent as well.
import "../../src/wire/http2_guard.ts";
import { create } from "@bufbuild/protobuf";
import {
  type ChannelCredentials,
  Client,
  type ClientReadableStream,
  type ClientUnaryCall,
  credentials,
  Metadata,
  type MethodDefinition,
  type ServiceError,
  type status,
} from "@grpc/grpc-js";
import {
  type FileChunk,
  GetProcessRequestSchema,
  KillProcessRequestSchema,
  type OutputChunk,
  OutputSource,
  type Process,
  ReadFileRequestSchema,
  StartProcessRequestSchema,
  StreamProcessOutputsRequestSchema,
  type WriteFileRequest,
  WriteFileRequestSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import {
  fileSystemServiceDefinition,
  processServiceDefinition,
} from "../../src/wire/definitions.ts";
import { concatBytes, OutputReader } from "./output_reader.ts";

/** The largest int64: how clients wait for the end of a process without its output. */
export const INT64_MAX = 2n ** 63n - 1n;

/** Milliseconds after which a call that does not set its own deadline counts as hanging. */
const HANGS_MS = 60_000;

/** What one call may set. */
export interface CallSettings {
  readonly deadlineMs?: number;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Told the metadata that the answer begins with. */
  readonly onMetadata?: (metadata: Metadata) => void;
  /** Given the call, to cancel it. */
  readonly onCall?: (call: { cancel(): void }) => void;
}

/** What of a process may be set beside its command. */
export interface StartSettings extends CallSettings {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** What of a stream of output may be set. */
export interface OutputSettings extends CallSettings {
  readonly stdoutOffset?: bigint | number;
  readonly stderrOffset?: bigint | number;
  readonly follow?: boolean;
}

/** A finished process with all of its output. */
export interface Finished {
  readonly process: Process;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  /** stdout as UTF-8. */
  readonly text: string;
}

/** How to reach the agent. */
export interface ApiOptions {
  readonly credentials?: ChannelCredentials;
  readonly token?: string;
}

/** A read of a file. */
export interface FileRead {
  readonly call: ClientReadableStream<FileChunk>;
  /** Size of the largest message on the wire, in bytes. */
  readonly largestMessage: () => number;
}

const decoder = new TextDecoder();
const encoder = new TextEncoder();

/** One connection to one agent. */
export class AgentApi implements Disposable {
  readonly client: Client;
  readonly #token: string | undefined;

  /** `target` is a grpc-js target: `127.0.0.1:8080`, `unix:/path`. */
  constructor(target: string, options: ApiOptions = {}) {
    this.#token = options.token;
    this.client = new Client(target, options.credentials ?? credentials.createInsecure(), {
      "grpc.enable_http_proxy": 0,
      "grpc.use_local_subchannel_pool": 1,
      // The certificates of tests are for names; Node takes no address for one.
      ...(options.credentials === undefined
        ? {}
        : { "grpc.ssl_target_name_override": "localhost" }),
    });
  }

  [Symbol.dispose](): void {
    this.client.close();
  }

  /** Resolves once the connection stands. */
  async ready(): Promise<void> {
    await new Promise<void>((resolve, reject) =>
      this.client.waitForReady(
        Date.now() + HANGS_MS,
        (error) => error ? reject(error) : resolve(),
      )
    );
  }

  /** One request, one answer; rejects with grpc-js's ServiceError. */
  unary<I, O>(method: MethodDefinition<I, O>, request: I, settings: CallSettings = {}): Promise<O> {
    return new Promise<O>((resolve, reject) => {
      const call = this.client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        this.#metadata(settings),
        deadline(settings),
        (error, answer) => error ? reject(error) : resolve(answer!),
      );
      watch(call, settings);
    });
  }

  /** One request, a stream of answers, with the size of the largest message seen up to now. */
  stream<I, O>(method: MethodDefinition<I, O>, request: I, settings: CallSettings = {}) {
    let largest = 0;
    const call = this.client.makeServerStreamRequest(
      method.path,
      method.requestSerialize,
      (bytes: Buffer) => {
        largest = Math.max(largest, bytes.length);
        return method.responseDeserialize(bytes);
      },
      request,
      this.#metadata(settings),
      deadline(settings),
    );
    // The error is also thrown where the stream is read; a cancelled one is not read any more.
    call.on("error", () => {});
    watch(call, settings);
    return { call, largestMessage: () => largest };
  }

  async start(command: readonly string[], settings: StartSettings = {}): Promise<string> {
    const { cwd = "", env = {} } = settings;
    const request = create(StartProcessRequestSchema, { command: [...command], cwd, env });
    return (await this.unary(processServiceDefinition.startProcess, request, settings)).processId;
  }

  get(processId: string, settings: CallSettings = {}): Promise<Process> {
    const request = create(GetProcessRequestSchema, { processId });
    return this.unary(processServiceDefinition.getProcess, request, settings);
  }

  async kill(processId: string, settings: CallSettings = {}): Promise<number> {
    const request = create(KillProcessRequestSchema, { processId });
    return (await this.unary(processServiceDefinition.killProcess, request, settings)).exitCode;
  }

  /** A stream of output; it ends with its disposal at the latest. */
  outputs(processId: string, settings: OutputSettings = {}): OutputReader {
    const { stdoutOffset = 0, stderrOffset = 0, follow = false } = settings;
    const request = create(StreamProcessOutputsRequestSchema, {
      processId,
      stdoutOffset: BigInt(stdoutOffset),
      stderrOffset: BigInt(stderrOffset),
      follow,
    });
    const method = processServiceDefinition.streamProcessOutputs;
    const { call, largestMessage } = this.stream<typeof request, OutputChunk>(
      method,
      request,
      settings,
    );
    return new OutputReader(call, largestMessage, OutputSource.STDERR);
  }

  /** Waits on a follow that carries no output, then asks for the final status. */
  async finished(processId: string): Promise<Process> {
    using reader = this.outputs(processId, {
      stdoutOffset: INT64_MAX,
      stderrOffset: INT64_MAX,
      follow: true,
    });
    await reader.rest();
    return await this.get(processId);
  }

  /** Starts a process and follows it to its end. */
  async run(command: readonly string[], settings: StartSettings = {}): Promise<Finished> {
    const id = await this.start(command, settings);
    using reader = this.outputs(id, { follow: true });
    await reader.rest();
    const process = await this.get(id);
    const { stdout, stderr } = reader;
    return { process, stdout, stderr, text: decoder.decode(stdout) };
  }

  /** Runs shell text, which must end with 0, and gives what it printed without the last newline. */
  async sh(text: string, ...args: string[]): Promise<string> {
    const { process, text: printed, stderr } = await this.run(["sh", "-c", text, "sh", ...args]);
    if (process.exitCode !== 0) {
      throw new Error(`sh -c ${text}: ended with ${process.exitCode}: ${decoder.decode(stderr)}`);
    }
    return printed.replace(/\n$/, "");
  }

  readStream(path: string, settings: CallSettings = {}): FileRead {
    const request = create(ReadFileRequestSchema, { path });
    return this.stream(fileSystemServiceDefinition.readFile, request, settings);
  }

  async read(path: string, settings: CallSettings = {}): Promise<Uint8Array<ArrayBuffer>> {
    const pieces: Uint8Array[] = [];
    for await (const chunk of this.readStream(path, settings).call) {
      pieces.push((chunk as FileChunk).data);
    }
    return concatBytes(pieces);
  }

  async readText(path: string): Promise<string> {
    return decoder.decode(await this.read(path));
  }

  /** Uploads `content` in messages of at most 256 KiB (one empty one if there is nothing). */
  write(
    path: string,
    content: Uint8Array | string,
    mode = 0,
    settings: CallSettings = {},
  ): Promise<bigint> {
    const bytes = typeof content === "string" ? encoder.encode(content) : content;
    const messages: WriteMessage[] = [{ path, mode, chunk: bytes.subarray(0, CHUNK_BYTES) }];
    for (let at = CHUNK_BYTES; at < bytes.length; at += CHUNK_BYTES) {
      messages.push({ chunk: bytes.subarray(at, at + CHUNK_BYTES) });
    }
    return this.writeMessages(messages, settings);
  }

  /** An upload of exactly these messages. */
  async writeMessages(
    messages: readonly WriteMessage[],
    settings: CallSettings = {},
  ): Promise<bigint> {
    const upload = this.upload(settings);
    for (const message of messages) upload.send(message);
    upload.end();
    return await upload.answer;
  }

  /** An upload whose messages are sent one by one; `answer` is the number of bytes written. */
  upload(settings: CallSettings = {}) {
    const method = fileSystemServiceDefinition.writeFile;
    const answer = Promise.withResolvers<bigint>();
    // Whoever cancels an upload need not look at how it ended.
    answer.promise.catch(() => {});
    const call = this.client.makeClientStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      this.#metadata(settings),
      deadline(settings),
      (error, value) => error ? answer.reject(error) : answer.resolve(value!.bytesWritten),
    );
    watch(call as unknown as ClientUnaryCall, settings);
    return {
      /** Resolves once the message was taken by the transport. */
      send: (message: WriteMessage): Promise<void> =>
        new Promise((resolve) =>
          call.write(create(WriteFileRequestSchema, message) as WriteFileRequest, () => resolve())
        ),
      end: () => call.end(),
      cancel: () => call.cancel(),
      answer: answer.promise,
    };
  }

  #metadata(settings: CallSettings): Metadata {
    const metadata = new Metadata();
    if (this.#token !== undefined) metadata.set("authorization", `Bearer ${this.#token}`);
    for (const [name, value] of Object.entries(settings.metadata ?? {})) metadata.set(name, value);
    return metadata;
  }
}

const CHUNK_BYTES = 256 * 1024;

/** Fields of one message of an upload. */
export interface WriteMessage {
  readonly path?: string;
  readonly mode?: number;
  readonly chunk?: Uint8Array;
}

function deadline(settings: CallSettings) {
  return { deadline: Date.now() + (settings.deadlineMs ?? HANGS_MS) };
}

function watch(
  call: { cancel(): void; on(event: "metadata", listener: (metadata: Metadata) => void): unknown },
  settings: CallSettings,
): void {
  if (settings.onMetadata !== undefined) call.on("metadata", settings.onMetadata);
  settings.onCall?.(call);
}

/** The error that a call must end with: that status, with all the words in its message. */
export async function rejectsWith(
  call: Promise<unknown>,
  code: status,
  ...words: string[]
): Promise<ServiceError> {
  let answer: unknown;
  try {
    answer = await call;
  } catch (error) {
    const { code: actual, details } = error as ServiceError;
    if (actual === undefined) throw error;
    const missing = words.filter((word) => !details.includes(word));
    if (actual !== code || missing.length > 0) {
      throw new Error(
        `want status ${code} with ${JSON.stringify(words)}, got ${actual}: ${details}`,
      );
    }
    return error as ServiceError;
  }
  const shown = JSON.stringify(
    answer,
    (_, value) => typeof value === "bigint" ? `${value}` : value,
  );
  throw new Error(`want status ${code}, got an answer: ${shown?.slice(0, 300)}`);
}
