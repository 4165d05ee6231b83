// Calls of every kind that do little if they get through unharmed.
// Must not import the product but the generated messages.
import { create, toBinary } from "@bufbuild/protobuf";
import {
  GetProcessRequestSchema,
  KillProcessRequestSchema,
  ReadFileRequestSchema,
  StartProcessRequestSchema,
  StreamProcessOutputsRequestSchema,
  WriteFileRequestSchema,
} from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import type { Dice } from "./dice.ts";

const PROCESS = "/ateenv.v1alpha.ProcessService/";
const FILES = "/ateenv.v1alpha.FileSystemService/";
const PROCESS_ID = "0123456789abcdef0123456789abcdef";

/** A method and one request of it. */
export interface SomeCall {
  readonly path: string;
  readonly message: Uint8Array;
}

/** A call that is in order, and NOT_FOUND. */
export const ORDERLY_CALL: SomeCall = {
  path: `${PROCESS}GetProcess`,
  message: toBinary(
    GetProcessRequestSchema,
    create(GetProcessRequestSchema, { processId: PROCESS_ID }),
  ),
};

function startCall(): SomeCall {
  const request = create(StartProcessRequestSchema, { command: ["true"], env: { A: "b" } });
  return { path: `${PROCESS}StartProcess`, message: toBinary(StartProcessRequestSchema, request) };
}

function killCall(): SomeCall {
  const request = create(KillProcessRequestSchema, { processId: PROCESS_ID });
  return { path: `${PROCESS}KillProcess`, message: toBinary(KillProcessRequestSchema, request) };
}

function outputsCall(dice: Dice): SomeCall {
  const request = create(StreamProcessOutputsRequestSchema, {
    processId: PROCESS_ID,
    follow: true,
    stdoutOffset: BigInt(dice.below(1000)),
  });
  return {
    path: `${PROCESS}StreamProcessOutputs`,
    message: toBinary(StreamProcessOutputsRequestSchema, request),
  };
}

function readCall(): SomeCall {
  const request = create(ReadFileRequestSchema, { path: "fuzz" });
  return { path: `${FILES}ReadFile`, message: toBinary(ReadFileRequestSchema, request) };
}

function writeCall(dice: Dice): SomeCall {
  const request = create(WriteFileRequestSchema, { path: "fuzz", chunk: dice.bytes(20) });
  return { path: `${FILES}WriteFile`, message: toBinary(WriteFileRequestSchema, request) };
}

const OTHER_PATHS = [
  "/grpc.health.v1.Health/Check",
  "/grpc.health.v1.Health/Watch",
  "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
  `${PROCESS}NoSuchMethod`,
];

/** Any one of them. */
export function someCall(dice: Dice): SomeCall {
  switch (dice.below(7)) {
    case 0:
      return startCall();
    case 1:
      return ORDERLY_CALL;
    case 2:
      return killCall();
    case 3:
      return outputsCall(dice);
    case 4:
      return readCall();
    case 5:
      return writeCall(dice);
    default:
      return {
        path: dice.pick(OTHER_PATHS),
        message: dice.chance(0.5) ? new Uint8Array(0) : dice.bytes(dice.below(40)),
      };
  }
}
