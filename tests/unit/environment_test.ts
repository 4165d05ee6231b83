// Which variables are taken out of the agent's own environment, so that children do not inherit them.
import { assertEquals } from "@std/assert";
import { parseConfig } from "../../src/config.ts";
import { takeEnvironment } from "../../src/environment.ts";
import { createLogger } from "../../src/log.ts";

const MINE = [
  "PORT",
  "WORKSPACE",
  "PWD",
  "ATEENV_SOMETHING",
  "DENO_FOO",
  "npm_foo",
  "LD_TEST",
  "KEEP_ME",
];

function take(...flags: string[]) {
  const args = ["--state-dir", "/s", "--strip-env", "ATEENV_SOMETHING:DENO_FOO:npm_foo:LD_TEST:"];
  const command = parseConfig([...args, ...flags], () => undefined);
  if (command.action !== "serve") throw new Error(JSON.stringify(command));
  const lines: string[] = [];
  for (const name of MINE) Deno.env.set(name, "a value");
  try {
    takeEnvironment(command.config, createLogger("info", (line) => lines.push(line)));
    return { left: MINE.filter((name) => Deno.env.get(name) !== undefined), lines };
  } finally {
    for (const name of MINE) Deno.env.delete(name);
  }
}

Deno.test("environment: the agent's and the runner's variables go, others stay", {
  permissions: { env: true },
}, () => {
  const { left, lines } = take();
  assertEquals(left, ["LD_TEST", "KEEP_ME"]);
  assertEquals(lines, []);
});

Deno.test("environment: under scoped run LD_* go too, with one line that names no value", {
  permissions: { env: true },
}, () => {
  const { left, lines } = take("--allow-run", "sh");
  assertEquals(left, ["KEEP_ME"]);
  assertEquals(lines.length, 1);
  assertEquals(lines[0]!.includes("LD_TEST"), true);
  assertEquals(lines[0]!.includes("a value"), false);
});
