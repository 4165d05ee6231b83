// Upload a repository as one archive, build it, and stream the build log. `ateenv cp` does the first part
// from the command line; here it is done with the library and the local `tar`.
//
//   ATEENV_ADDRESS=127.0.0.1:8080 \
//     deno run --allow-net --allow-env --allow-run=tar tests/examples/upload_and_build.ts DIRECTORY
import { connect } from "../../src/mod.ts";

const directory = Deno.args[0] ?? ".";
await using client = await connect();

// A function that opens the source anew: the upload survives a lost connection.
const bytes = await client.files.write("repo.tar", () =>
  new Deno.Command("tar", {
    args: ["-c", "-f", "-", "-C", directory, "."],
    stdin: "null",
    stdout: "piped",
  }).spawn().stdout);
console.log(`uploaded ${bytes > 0 ? "the repository" : "nothing"}`);

const unpacked = await client.shell("mkdir -p repo && tar -xf repo.tar -C repo && rm repo.tar");
if (unpacked.exitCode !== 0) throw new Error(unpacked.stderr);

const build = await client.processes.start(["sh", "build.sh"], {
  cwd: "repo",
  env: { CI: "1" },
});
for await (const { source, data } of build.output()) {
  await (source === "stdout" ? Deno.stdout : Deno.stderr).write(data);
}
const { exitCode } = await build.wait();
console.log(`build finished with exit code ${exitCode}`);

const artifact = await client.files.readText("repo/out/artifact.txt");
console.log(`artifact: ${artifact.trim()}`);
