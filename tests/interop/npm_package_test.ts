// The npm package of the client: built, installed as a user would, type-checked and run by Node.
// Needs node and npm; not part of `deno task test`.
import { assert, assertEquals } from "@std/assert";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { createTempDir } from "../helpers/state_dir.ts";

const REPOSITORY = new URL("../../", import.meta.url).pathname;

const PROGRAM = `
import { type AteenvClient, AteenvError, connect } from "@ateenv/ateenvd";

const client: AteenvClient = await connect();
const { stdout, exitCode } = await client.shell("echo hi; exit 3");
await client.files.write("copy", new Uint8Array(3_000_000));
const bytes: number = (await client.files.readBytes("copy")).length;
const process = await client.processes.start(["sh", "-c", "echo out; echo err >&2"]);
let pieces = 0;
for await (const { data } of process.output()) pieces += data.length;
const out = await new Response(process.stdout).text();
const kind = await client.files.readText("nope").then(() => "none", (error: unknown) =>
  error instanceof AteenvError ? error.kind : "other");
// @ts-expect-error The types are there, and are checked.
const wrong: string = exitCode;
console.log(JSON.stringify({ stdout, wrong, bytes, pieces, out, kind, health: await client.health() }));
await client.close();
`;

async function run(program: string, args: string[], cwd: string, env = {}): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(program, {
    args,
    cwd,
    env,
    stdin: "null",
  })
    .output();
  const text = new TextDecoder().decode(stdout);
  assertEquals(code, 0, `${program} ${args.join(" ")}\n${text}${new TextDecoder().decode(stderr)}`);
  return text;
}

Deno.test("the npm package runs on Node, with types", async () => {
  await run(
    Deno.execPath(),
    ["run", "--allow-read", "--allow-write", "--allow-run", "--allow-env", ".ci/build_npm.ts"],
    REPOSITORY,
  );
  await using dir = await createTempDir();
  await Deno.writeTextFile(`${dir.path}/package.json`, '{"private": true, "type": "module"}');
  await Deno.writeTextFile(`${dir.path}/main.ts`, PROGRAM);
  const install = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
  await run(
    "npm",
    [
      ...install,
      "--install-links",
      `${REPOSITORY}dist/npm`,
      "typescript@5.9.3",
      "@types/node@20.19.21",
    ],
    dir.path,
  );
  await run("node_modules/.bin/tsc", [
    ...["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "main.ts"],
  ], dir.path);
  const readme = await Deno.readTextFile(`${dir.path}/node_modules/@ateenv/ateenvd/README.md`);
  assert(
    /^# @ateenv\/ateenvd\n.*import \{ connect \} from "@ateenv\/ateenvd"/s.test(readme),
    readme,
  );
  await using agent = await startAgentProcess();
  const output = await run("node", ["main.js"], dir.path, { ATEENV_ADDRESS: agent.address });
  const { health, ...rest } = JSON.parse(output);
  assertEquals(rest, {
    stdout: "hi\n",
    wrong: 3,
    bytes: 3_000_000,
    pieces: 8,
    out: "out\n",
    kind: "not-found",
  });
  assertEquals(health.ready, true);
});
