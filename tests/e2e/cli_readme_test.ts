// What README.md shows of the CLI and the client library happens as it is shown.
// Must not import the CLI's own code: what it tests is the text.
import { assert, assertEquals } from "@std/assert";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { CLI_LAUNCHER } from "../helpers/cli_process.ts";
import { createTempDir } from "../helpers/state_dir.ts";

const REPOSITORY = new URL("../../", import.meta.url).pathname;
const README_ADDRESS = "127.0.0.1:8080";

/** The text of the first block of a language below a heading. */
async function block(heading: string, language: string): Promise<string> {
  const readme = await Deno.readTextFile(`${REPOSITORY}README.md`);
  const section = readme.slice(readme.indexOf(`\n## ${heading}\n`));
  const text = new RegExp(`\n\`\`\`${language}\n(.*?)\`\`\`\n`, "s").exec(section)?.[1];
  assert(text !== undefined, `${heading}: no ${language} block`);
  return text;
}

async function run(program: string, args: string[], cwd: string, env: Record<string, string>) {
  const { code, stdout, stderr } = await new Deno.Command(program, {
    args,
    cwd,
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, stdout: text(stdout), stderr: text(stderr) };
}

Deno.test("README: the recorded session of the CLI", async () => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  const session = await block("The CLI", "console");
  const commands = session.split("\n").filter((line) => line.startsWith("$ "));
  assert(commands.length >= 8, session);
  const script = [
    "exec 2>&1",
    `ateenv() { sh '${CLI_LAUNCHER}' "$@"; }`,
    ...commands.flatMap((line) => [`cat <<'END'\n${line}\nEND`, line.slice(2)]),
  ].join("\n");
  const { stdout } = await run("sh", ["-c", script], dir.path, {
    ATEENV_ADDRESS: agent.address,
    ATEENVD_DENO: Deno.execPath(),
  });
  const masked = (text: string) =>
    text.replaceAll(agent.address, README_ADDRESS)
      .replaceAll(/\d+ ms/g, "N ms").replaceAll(/\d+\.\d+\.\d+(?=,|$)/gm, "VERSION");
  assertEquals(masked(stdout), masked(session));
});

Deno.test("README: the example of the client library", async () => {
  await using agent = await startAgentProcess();
  await using dir = await createTempDir();
  const text = await block("The client library", "ts");
  const flags = /^\/\/ .*: deno run (.*) \S+\n/.exec(text)![1]!.split(" ");
  await Deno.writeTextFile(
    `${dir.path}/hello.ts`,
    text.replace("./src/", `${REPOSITORY}src/`).replace(README_ADDRESS, agent.address),
  );
  const { code, stdout, stderr } = await run(
    Deno.execPath(),
    ["run", "--no-prompt", `--config=${REPOSITORY}deno.json`, ...flags, "hello.ts"],
    dir.path,
    {},
  );
  assertEquals([code, stderr], [0, ""]);
  assert(/^3 hello\n\n1\n2\n3\n\{.*status: "completed".*\}\n$/s.test(stdout), stdout);
});
