// Makes calls on commands from stdin, one JSON object a line, and answers with one: `call_worker.ts ADDRESS`.
// `{"unary": 1000, "inFlight": 64}` on a connection that is closed afterwards;
// `{"follow": [ids], "connections": 10}` reads all of them to their end; `{"gauges": true}` reads /metrics;
// `{"start": [argv]}` starts a process; `{"hold": id, "connections": 20}` follows it and answers at once.
import { createHash } from "node:crypto";
import { AgentApi } from "../../helpers/agent_api.ts";
import { readGauges } from "../measure.ts";

/** What a follower has read of stdout. */
export interface Followed {
  readonly bytes: number;
  /** SHA-256, in hex. */
  readonly hash: string;
  /** Empty if it ended with OK. */
  readonly error: string;
}

type Command =
  | { unary: number; inFlight: number }
  | { follow: string[]; connections: number }
  | { hold: string; connections: number }
  | { start: string[] }
  | { gauges: true };

const [address = ""] = Deno.args;
/** Longer than any scenario lasts. */
const NEVER_MS = 3_600_000;

async function makeCalls(count: number, inFlight: number): Promise<number> {
  using api = new AgentApi(address);
  let left = count;
  let failed = 0;
  await Promise.all(Array.from({ length: inFlight }, async () => {
    while (left-- > 0) {
      await api.get("no such process").catch((error) => {
        if (error.code !== 5) failed++;
      });
    }
  }));
  return failed;
}

async function followOne(api: AgentApi, id: string): Promise<Followed> {
  const hash = createHash("sha256");
  const { call } = api.outputs(id, { follow: true, deadlineMs: NEVER_MS });
  let bytes = 0;
  let error = "";
  try {
    for await (const { data } of call) {
      hash.update(data);
      bytes += data.length;
    }
  } catch (reason) {
    error = String(reason);
  }
  return { bytes, hash: hash.digest("hex"), error };
}

function openApis(count: number): AgentApi[] {
  return Array.from({ length: count }, () => new AgentApi(address));
}

async function followAll(ids: readonly string[], connections: number): Promise<Followed[]> {
  const apis = openApis(connections);
  const followed = await Promise.all(
    ids.map((id, index) => followOne(apis[index % connections]!, id)),
  );
  for (const api of apis) api[Symbol.dispose]();
  return followed;
}

async function startOne(command: readonly string[]): Promise<string> {
  using api = new AgentApi(address);
  return await api.start(command);
}

async function obey(command: Command): Promise<unknown> {
  if ("unary" in command) return await makeCalls(command.unary, command.inFlight);
  if ("follow" in command) return await followAll(command.follow, command.connections);
  if ("start" in command) return await startOne(command.start);
  if ("gauges" in command) return Object.fromEntries(await readGauges(address));
  for (const api of openApis(command.connections)) {
    await api.ready();
    followOne(api, command.hold);
  }
  return command.connections;
}

let rest = "";
for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + text).split("\n");
  rest = lines.pop()!;
  for (const line of lines) console.log(JSON.stringify(await obey(JSON.parse(line))));
}
Deno.exit(0);
