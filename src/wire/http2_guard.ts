// Keeps Deno's HTTP/2 alive: a session is never destroyed from inside one of its own native callbacks.
// Installs itself when imported, on the server's side; must not import anything of ours.
import http2 from "node:http2";
import { Duplex } from "node:stream";

/*
 * Deno 2.9.4 to (at least) 2.9.6 destroys the JavaScript session from inside an nghttp2 send callback
 * when the peer's GOAWAY arrives. That frees the native session while nghttp2 is still on the stack, and
 * the whole process aborts after about a hundred calls (denoland/deno issue 36788). A destroy that
 * waits for a later turn of the event loop always finds the native stack empty.
 *
 * When it may go: once the oldest Deno that `checkDenoVersion` admits has that issue fixed, and
 * tests/integration/http2_guard_test.ts passes 200 rounds against a server that does not import this file.
 */

/** Oldest Deno with back-pressure in HTTP/2; before it a slow reader fills the memory. */
export const OLDEST_DENO = "2.9.4";

/**
 * Why this agent cannot run on Deno `version`, or undefined where it can. What is no version at all is
 * taken as a build of one's own and let through.
 */
export function checkDenoVersion(version: string): string | undefined {
  const parts = parseVersion(version);
  const oldest = parseVersion(OLDEST_DENO);
  if (parts === undefined || oldest === undefined) return undefined;
  for (let i = 0; i < 3; i++) {
    const difference = parts[i]! - oldest[i]!;
    if (difference > 0) return undefined;
    if (difference < 0) {
      return `ateenvd needs Deno ${OLDEST_DENO} or newer: Deno ${version} has no back-pressure in ` +
        `HTTP/2, so one slow client would fill the memory`;
    }
  }
  return undefined;
}

function parseVersion(version: string): readonly number[] | undefined {
  return /^(\d+)\.(\d+)\.(\d+)/.exec(version)?.slice(1, 4).map(Number);
}

interface SessionPrototype {
  destroy(this: http2.Http2Session, ...args: unknown[]): void;
}

const GUARDED = Symbol.for("ateenv.http2_guard");

/** `Http2Session.prototype`, which node:http2 does not export: found through a throw-away session. */
function findSessionPrototype(): SessionPrototype {
  const nowhere = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const session = http2.performServerHandshake(nowhere);
  try {
    for (let at: object | null = session; at !== null; at = Object.getPrototypeOf(at)) {
      if (at.constructor.name === "Http2Session" && Object.hasOwn(at, "destroy")) {
        return at as unknown as SessionPrototype;
      }
    }
  } finally {
    session.destroy();
    nowhere.destroy();
  }
  throw new Error("Cannot guard node:http2: Http2Session.prototype.destroy is not where it was");
}

function install(): void {
  const prototype = findSessionPrototype() as SessionPrototype & { [GUARDED]?: true };
  if (prototype[GUARDED]) return;
  const destroy = prototype.destroy;
  const pending = new WeakSet<http2.Http2Session>();
  prototype.destroy = function (...args) {
    if (this.destroyed || pending.has(this)) return;
    pending.add(this);
    // setImmediate, not a microtask: microtasks run before the native callback returns.
    setImmediate(() => destroy.apply(this, args));
  };
  prototype[GUARDED] = true;
}

install();
