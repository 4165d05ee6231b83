// The load of tests/integration/http2_guard_test.ts at its full size.
import { runGuardLoad } from "../helpers/guard_load.ts";

Deno.test("thirty clients that call and leave, then thirty that cancel, do no harm", {
  permissions: { net: ["127.0.0.1"], run: true, read: true },
}, () => runGuardLoad({ rounds: 30, mixedRounds: 30 }));
