// A plain grpc-js client of the echo server, with promises: what integration tests of the port call with.
// Must not import the client library: the port is tested without it.
import { create } from "@bufbuild/protobuf";
import {
  type CallOptions,
  type ChannelCredentials,
  type Client,
  credentials,
  makeGenericClientConstructor,
  Metadata,
  type ServiceError,
} from "@grpc/grpc-js";
import {
  GetProcessRequestSchema,
  KillProcessRequestSchema,
  ReadFileRequestSchema,
  StartProcessRequestSchema,
  WriteFileRequestSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import {
  HealthCheckRequestSchema,
  type HealthCheckResponse,
} from "../../gen/grpc/health/v1/health_pb.ts";
import type { AgentServer } from "../../src/rpc/server.ts";
import {
  fileSystemServiceDefinition,
  healthServiceDefinition,
  processServiceDefinition,
} from "../../src/wire/definitions.ts";

// deno-lint-ignore no-explicit-any
type AnyClient = Client & Record<string, any>;

/** How a unary call ended. */
export interface Outcome {
  readonly code: number;
  readonly message: string;
  // deno-lint-ignore no-explicit-any
  readonly answer: any;
  /** Headers of the answer and trailers, together. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** Address of a server on TCP, as host:port. */
export function addressOf(server: AgentServer): string {
  const [address] = server.addresses;
  if (address === undefined || !("port" in address)) throw new Error("no TCP address");
  return `127.0.0.1:${address.port}`;
}

/** Calls on one connection of its own; closed by `using`. */
export class EchoClient implements Disposable {
  readonly raw: AnyClient;

  constructor(
    address: string,
    channelCredentials: ChannelCredentials = credentials.createInsecure(),
  ) {
    const Everything = makeGenericClientConstructor(
      {
        ...processServiceDefinition,
        ...fileSystemServiceDefinition,
        ...healthServiceDefinition,
        unknown: {
          ...processServiceDefinition.getProcess,
          path: "/no.Such/Method",
          originalName: "unknown",
        },
      } as never,
      "Everything",
    );
    this.raw = new Everything(address, channelCredentials, {
      "grpc.use_local_subchannel_pool": 1,
      "grpc.max_send_message_length": -1,
      "grpc.ssl_target_name_override": "localhost",
    }) as AnyClient;
  }

  start(
    what: string,
    options: CallOptions = {},
    metadata: Metadata = new Metadata(),
  ): Promise<Outcome> {
    return this.call(
      "startProcess",
      create(StartProcessRequestSchema, { command: [what] }),
      options,
      metadata,
    );
  }

  get(metadata: Metadata = new Metadata()): Promise<Outcome> {
    return this.call("getProcess", create(GetProcessRequestSchema), {}, metadata);
  }

  unknown(metadata: Metadata = new Metadata()): Promise<Outcome> {
    return this.call("unknown", create(GetProcessRequestSchema), {}, metadata);
  }

  check(service = ""): Promise<Outcome> {
    return this.call("check", create(HealthCheckRequestSchema, { service }));
  }

  /** A call that never answers by itself. */
  kill(options: CallOptions = {}): Promise<Outcome> & { cancel(): void } {
    const cancel = { now: () => {} };
    const outcome = this.call(
      "killProcess",
      create(KillProcessRequestSchema),
      options,
      new Metadata(),
      (call) => cancel.now = () => call.cancel(),
    );
    return Object.assign(outcome, { cancel: () => cancel.now() });
  }

  /** A download of `bytes` bytes. */
  read(bytes: number, options: CallOptions = {}) {
    const request = create(ReadFileRequestSchema, { path: String(bytes) });
    return this.raw.readFile!(request, new Metadata(), options);
  }

  /** An upload: write chunks to `call`, end it, await `outcome`. */
  write(options: CallOptions = {}) {
    const { promise, resolve } = Promise.withResolvers<Outcome>();
    const call = this.raw.writeFile!(
      new Metadata(),
      options,
      (error: ServiceError | null, answer: unknown) => resolve(outcomeOf(error, answer)),
    );
    const send = (chunk: Uint8Array) =>
      new Promise<void>((sent) =>
        call.write(create(WriteFileRequestSchema, { path: "x", chunk }), () => sent())
      );
    return { call, send, outcome: promise };
  }

  /** Statuses of `service` as they come. */
  async *watch(service = ""): AsyncGenerator<number> {
    const request = create(HealthCheckRequestSchema, { service });
    for await (const { status } of this.raw.watch!(request) as AsyncIterable<HealthCheckResponse>) {
      yield status;
    }
  }

  call(
    method: string,
    request: unknown,
    options: CallOptions = {},
    metadata: Metadata = new Metadata(),
    // deno-lint-ignore no-explicit-any
    onCall: (call: any) => void = () => {},
  ): Promise<Outcome> {
    return new Promise((resolve) => {
      let headers = {};
      const call = this.raw[method](
        request,
        metadata,
        options,
        (error: ServiceError | null, answer: unknown) => {
          resolve(outcomeOf(error, answer, headers));
        },
      );
      call.on("metadata", (received: Metadata) => headers = received.getMap());
      onCall(call);
    });
  }

  [Symbol.dispose](): void {
    this.raw.close();
  }
}

function outcomeOf(error: ServiceError | null, answer: unknown, headers: object = {}): Outcome {
  return {
    code: error?.code ?? 0,
    message: error?.details ?? "",
    answer,
    metadata: { ...headers, ...error?.metadata?.getMap() },
  };
}
