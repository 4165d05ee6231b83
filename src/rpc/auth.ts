// Who may call: everyone, who knows the token, or who has a certificate.
// Must not import grpc-js; the token never leaves this file.
import { timingSafeEqual } from "node:crypto";
import type { Clock } from "../clock.ts";
import { AgentError } from "../errors.ts";
import { errorFields, type Logger } from "../log.ts";
import { FileWatch } from "../wire/file_watch.ts";

/** How callers are told apart. `mtls` leans on the TLS handshake, which asked for a certificate. */
export type AuthMode =
  | { readonly mode: "none" }
  | { readonly mode: "token"; readonly tokenFile: string }
  | { readonly mode: "mtls" };

/** What a caller shows. */
export interface Credentials {
  /** The `authorization` header. */
  readonly authorization: string | undefined;
  /** Whether the connection's certificate was signed by our client CA. */
  readonly certified: boolean;
}

/** Decides about one call at a time. */
export interface Authenticator {
  /** Why the caller may not pass (`unauthenticated`), or undefined. */
  refusal(credentials: Credentials): AgentError | undefined;
}

/** Longer is no token but the wrong file. */
const MAX_TOKEN_BYTES = 4096;

/**
 * The authenticator of `auth`. A token file must be readable and hold a token now.
 * @throws {AgentError} invalid-argument, where it does not
 */
export function createAuthenticator(auth: AuthMode, clock: Clock, log: Logger): Authenticator {
  switch (auth.mode) {
    case "none":
      return { refusal: () => undefined };
    case "mtls":
      return {
        refusal: ({ certified }) =>
          certified
            ? undefined
            : new AgentError("unauthenticated", "a client certificate is required"),
      };
    case "token": {
      const token = new TokenFile(auth.tokenFile, clock, log);
      return { refusal: ({ authorization }) => token.refusal(authorization) };
    }
  }
}

class TokenFile {
  readonly #path: string;
  readonly #log: Logger;
  readonly #watch: FileWatch;
  #token: Uint8Array;

  constructor(path: string, clock: Clock, log: Logger) {
    this.#path = path;
    this.#log = log;
    try {
      this.#watch = new FileWatch([path], clock);
      this.#token = readToken(path);
    } catch (error) {
      if (error instanceof AgentError) throw error;
      throw new AgentError("invalid-argument", `cannot read the token file "${path}"`, {
        cause: error,
      });
    }
  }

  refusal(authorization: string | undefined): AgentError | undefined {
    if (authorization === undefined) {
      return new AgentError("unauthenticated", "missing authorization: a bearer token is required");
    }
    const match = /^bearer +(\S+)$/i.exec(authorization);
    if (match === null) {
      return new AgentError("unauthenticated", "malformed authorization: expected a bearer token");
    }
    this.#reload();
    return sameBytes(new TextEncoder().encode(match[1]), this.#token)
      ? undefined
      : new AgentError("unauthenticated", "invalid bearer token");
  }

  /** A file that cannot be read, or is empty, while it is replaced leaves the old token in force. */
  #reload(): void {
    try {
      this.#watch.check(() => {
        this.#token = readToken(this.#path);
        this.#log.info("token file re-read");
      });
    } catch (error) {
      this.#log.warn("cannot re-read the token file, the old token stays", errorFields(error));
    }
  }
}

function readToken(path: string): Uint8Array {
  const token = Deno.readTextFileSync(path).trim();
  if (token === "" || /\s/.test(token) || token.length > MAX_TOKEN_BYTES) {
    throw new AgentError("invalid-argument", `the token file "${path}" must hold one token`);
  }
  return new TextEncoder().encode(token);
}

/** Takes as long for a wrong byte at the start as for one at the end; only the length shows. */
function sameBytes(given: Uint8Array, expected: Uint8Array): boolean {
  const padded = new Uint8Array(expected.length);
  padded.set(given.subarray(0, expected.length));
  return timingSafeEqual(padded, expected) && given.length === expected.length;
}
