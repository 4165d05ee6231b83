// The two places where we reach into grpc-js, which its public interface has no words for.
// The version is pinned, and a change shows at the start, not in a call. Server only.
import type { Server } from "@grpc/grpc-js";
import type { Http2Server, ServerOptions } from "node:http2";

interface ServerInternals {
  /** What grpc-js passes to http2.createServer. */
  readonly commonServerOptions?: ServerOptions;
  /** Its HTTP/2 servers, among them those behind connection injectors. */
  readonly http2Servers?: Map<Http2Server, unknown>;
}

/**
 * Adds to the options of the HTTP/2 servers that `server` will make: grpc-js sets neither flow control
 * windows nor nghttp2's limits.
 * @throws {Error} where another version of grpc-js keeps them elsewhere
 */
export function addHttp2Options(server: Server, options: ServerOptions): void {
  const { commonServerOptions } = server as unknown as ServerInternals;
  if (typeof commonServerOptions !== "object") throw changed("the HTTP/2 options");
  Object.assign(commonServerOptions, options);
}

/**
 * The HTTP/2 server behind the one connection injector of `server`, whose streams the gate must see before
 * grpc-js does.
 * @throws {Error} where another version of grpc-js keeps it elsewhere
 */
export function http2ServerOf(server: Server): Http2Server {
  const { http2Servers } = server as unknown as ServerInternals;
  if (!(http2Servers instanceof Map) || http2Servers.size !== 1) throw changed("the HTTP/2 server");
  const [http2Server] = http2Servers.keys();
  return http2Server!;
}

function changed(what: string): Error {
  return new Error(`Cannot find ${what} inside grpc-js: another version than the pinned one?`);
}
