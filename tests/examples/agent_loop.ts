// An agent loop: run the tests, let a model mend the file, until they pass. Here the "model" is a function.
//
//   ATEENV_ADDRESS=127.0.0.1:8080 deno run --allow-net --allow-env tests/examples/agent_loop.ts
import { type AteenvClient, AteenvError, connect } from "../../src/mod.ts";

const MAX_ROUNDS = 5;
const ROUND_TIMEOUT_MS = 30_000;

/** Stands for a model: sees the file and what the test said, answers with a new file. */
function propose(source: string, complaint: string): string {
  return complaint.includes("expected 5") ? source.replace("$1 - $2", "$1 + $2") : source;
}

async function runTests(client: AteenvClient): Promise<{ passed: boolean; complaint: string }> {
  try {
    // A test that hangs is a failure too: its whole process tree is killed when the signal fires.
    const { exitCode, stderr } = await client.shell("sh test.sh", {
      signal: AbortSignal.timeout(ROUND_TIMEOUT_MS),
    });
    return { passed: exitCode === 0, complaint: stderr };
  } catch (error) {
    if (!(error instanceof AteenvError) || error.kind !== "deadline-exceeded") throw error;
    return { passed: false, complaint: `the tests ran for more than ${ROUND_TIMEOUT_MS} ms` };
  }
}

await using client = await connect();
await client.files.write("add.sh", "echo $(($1 - $2))\n");
await client.files.write(
  "test.sh",
  'sum=$(sh add.sh 2 3); [ "$sum" = 5 ] || { echo "add 2 3: expected 5, not $sum" >&2; exit 1; }\n',
);

for (let round = 1; round <= MAX_ROUNDS; round++) {
  const { passed, complaint } = await runTests(client);
  console.log(`round ${round}: ${passed ? "passed" : complaint.trim()}`);
  if (passed) break;
  await client.files.write("add.sh", propose(await client.files.readText("add.sh"), complaint));
}
