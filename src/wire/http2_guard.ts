// Keeps Deno's HTTP/2 alive: a session is never destroyed from inside one of its own native callbacks.
// Installs itself when imported, in server and client; must not import anything of ours.
import http2 from "node:http2";
import { Duplex } from "node:stream";

/*
 * Deno 2.9.4 to (at least) 2.9.6 destroys the JavaScript session from inside an nghttp2 send callback
 * when the peer's GOAWAY arrives. That frees the native session while nghttp2 is still on the stack, and
 * the whole process aborts after about a hundred calls (denoland/deno issue 36788). A destroy that
 * waits for a later turn of the event loop always finds the native stack empty.
 *
 * When it may go: once the oldest Deno that `src/version.ts` admits has that issue fixed, and
 * tests/integration/http2_guard_test.ts passes 200 rounds against a server that does not import this file.
 */

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

// The client runs on Node as well, which needs no guard.
if ("Deno" in globalThis) install();
