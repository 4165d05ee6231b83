// The door for users: the client library. Also the entry of the npm package, so nothing behind it may
// need Deno.

/**
 * Client of the `ateenv.v1alpha` API: runs commands and moves files in a sandbox, over connections
 * that may be cut at any time.
 *
 * ```ts
 * import { connect } from "@ateenv/ateenvd";
 *
 * await using client = await connect();
 * await client.files.write("hello.sh", "echo hello; exit 3\n");
 * const { stdout, exitCode } = await client.shell("sh hello.sh");
 * console.log(stdout, exitCode);
 * ```
 *
 * @module
 */
export { connect, type ConnectOptions, type TlsOptions } from "./client/connect.ts";
export { AteenvClient, type ShellOptions, type ShellResult } from "./client/client.ts";
export { AteenvError, type AteenvErrorKind, type AteenvErrorOptions } from "./client/error.ts";
export {
  type AbortOptions,
  type OutputOptions,
  type OutputPiece,
  ProcessHandle,
  type ProcessState,
  type ProcessStatus,
} from "./client/process.ts";
export { Processes, type StartOptions } from "./client/processes.ts";
export type { ErrorKind } from "./errors.ts";
export { Files, type WriteOptions } from "./client/files.ts";
export type { ByteSource, UploadSource } from "./client/upload.ts";
export type { Health } from "./client/readyz.ts";
export type { RetryPolicy } from "./client/retry.ts";
