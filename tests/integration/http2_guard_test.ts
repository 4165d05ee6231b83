// What the HTTP/2 guard is for: without it this load aborts the server within its first rounds.
import { runGuardLoad } from "../helpers/guard_load.ts";

Deno.test("clients that call and leave neither end the server nor fill its memory", {
  permissions: { net: ["127.0.0.1"], run: true, read: true },
}, () => runGuardLoad({ rounds: 18, mixedRounds: 3 }));
