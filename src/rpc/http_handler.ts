// What the port answers to plain HTTP: /readyz, /healthz, /metrics.
// Must not import gRPC; used for HTTP/1.1 and for a GET over HTTP/2.
import { type HttpAnswer, type HttpRequest, textAnswer } from "../wire/http1.ts";
import type { Authenticator } from "./auth.ts";
import { type Metrics, METRICS_CONTENT_TYPE } from "./metrics.ts";

/** What the answers depend on. */
export interface HttpHandlerOptions {
  /** Whether new work is refused. */
  readonly draining: () => boolean;
  readonly auth: Authenticator;
  readonly metrics: Metrics;
}

/** A function that answers plain HTTP requests; `certified` as in {@linkcode Credentials}. */
export function createHttpHandler(
  { draining, auth, metrics }: HttpHandlerOptions,
): (request: HttpRequest, certified: boolean) => HttpAnswer | Promise<HttpAnswer> {
  return ({ path, authorization }, certified) => {
    switch (path) {
      case "/readyz":
        return draining() ? textAnswer(503, "draining") : textAnswer(200, "ok");
      case "/healthz":
        // Alive is alive: a draining agent must not be killed for it.
        return textAnswer(200, "ok");
      case "/metrics": {
        const refusal = auth.refusal({ authorization, certified });
        if (refusal !== undefined) {
          return {
            ...textAnswer(401, refusal.message + "\n"),
            headers: { "WWW-Authenticate": "Bearer" },
          };
        }
        return metrics.format().then((body) => ({
          status: 200,
          contentType: METRICS_CONTENT_TYPE,
          body,
        }));
      }
      default: {
        // Which paths there are is nobody's secret, but an answer to all of them costs nothing less.
        return textAnswer(404, "not found\n");
      }
    }
  };
}
