// The end of grpc-js's connections. Its close() only begins it, and leaves a timer behind; what is left
// would keep a program, or a test's sanitizer, waiting.
// Leans on grpc-js 1.14 internals, and does nothing where they are not as expected; the tests of the client
// show it by their sanitizers when grpc-js is updated.
import type { Client } from "@grpc/grpc-js";
import { deferred } from "./deferred.ts";

/** As much of an http2 session as is used here. */
interface Session {
  readonly destroyed: boolean;
  once(event: "close", listener: () => void): unknown;
  destroy(): void;
}

interface Subchannel {
  continueConnecting: boolean;
  readonly backoffTimeout?: { stop(): void };
  readonly transport?: { readonly session?: Session } | null;
}

interface Internals {
  readonly internalChannel?: {
    readonly subchannelPool?: {
      readonly pool?: Record<string, { readonly subchannel: Subchannel }[]>;
    };
  };
}

/** A session with no open stream closes in one round trip; a dead peer gets no longer than this. */
const SESSION_CLOSE_MS = 500;

/** Closes a client that has its own subchannel pool, and waits until its connections have ended. */
export async function closeConnections(client: Client): Promise<void> {
  const channel = client.getChannel() as unknown as Internals;
  const pool = channel.internalChannel?.subchannelPool?.pool ?? {};
  const subchannels = Object.values(pool).flat().map(({ subchannel }) => subchannel);
  const sessions = subchannels.flatMap(({ transport }) => transport?.session ?? []);
  const ended = sessions.map(waitEnd);
  client.close();
  for (const subchannel of subchannels) {
    // The pause after a failed attempt would run on, and another attempt be made after it.
    subchannel.continueConnecting = false;
    subchannel.backoffTimeout?.stop();
  }
  await Promise.all(ended);
}

function waitEnd(session: Session): Promise<void> {
  const { promise, resolve } = deferred<void>();
  if (session.destroyed) resolve();
  const timer = setTimeout(() => session.destroy(), SESSION_CLOSE_MS);
  session.once("close", resolve);
  return promise.finally(() => clearTimeout(timer));
}
