// Quickstart: a file up, a command, its output and exit code, a file down.
//
//   ATEENV_ADDRESS=127.0.0.1:8080 deno run --allow-net --allow-env tests/examples/quickstart.ts
//
// From another directory: with `--config CLONE/deno.json`, which names the libraries.
import { connect } from "../../src/mod.ts";

await using client = await connect();

await client.files.write("hello.sh", 'echo "hello from $(uname -s)" | tee greeting; exit 3\n');

// One shell command, waited for.
const { stdout, exitCode } = await client.shell("sh hello.sh");
console.log(`exit code ${exitCode}: ${stdout.trim()}`);

// A process in the background, followed as it writes.
const process = await client.processes.start(["sh", "-c", "for i in 1 2 3; do echo step $i; done"]);
for await (const { data } of process.output()) await Deno.stdout.write(data);
console.log(`finished: ${(await process.wait()).status}`);

console.log(`greeting: ${(await client.files.readText("greeting")).trim()}`);
