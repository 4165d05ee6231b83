import { assertEquals, assertThrows } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { MARKER_NAME, parseStartRequest } from "../../../src/process/start_request.ts";

const options = { permissions: "none" } as const;

Deno.test("cwd: the workspace by default, relative below it, absolute as it is", options, () => {
  const cwdOf = (cwd: string) =>
    parseStartRequest({ command: ["a"], cwd, env: {} }, "/srv/space").cwd;
  assertEquals(cwdOf(""), "/srv/space");
  assertEquals(cwdOf("x/../y"), "/srv/space/x/../y");
  assertEquals(cwdOf("/elsewhere"), "/elsewhere");
});

const REFUSED: [
  string,
  { command?: string[]; cwd?: string; env?: Record<string, string> },
  string,
][] = [
  ["no argv", { command: [] }, "command cannot be empty"],
  ["an empty program", { command: ["", "x"] }, "command cannot be empty"],
  ["NUL in an argument", { command: ["a", "b\0"] }, "NUL"],
  ["NUL in the cwd", { cwd: "a\0" }, "NUL"],
  ["NUL in a variable's value", { env: { A: "\0" } }, "NUL"],
  ["NUL in a variable's name", { env: { "A\0": "" } }, "NUL"],
  ["an empty name", { env: { "": "x" } }, "cannot be empty"],
  ["= in a name", { env: { "A=B": "x" } }, "cannot hold"],
  ["the marker", { env: { [MARKER_NAME]: "x" } }, MARKER_NAME],
];

for (const [what, request, text] of REFUSED) {
  Deno.test(`refused as invalid: ${what}`, options, () => {
    const error = assertThrows(
      () => parseStartRequest({ command: ["a"], cwd: "", env: {}, ...request }, "/w"),
      AgentError,
      text,
    );
    assertEquals(error.kind, "invalid-argument");
  });
}

Deno.test("empty arguments after the first, and empty values, are fine", options, () => {
  const request = parseStartRequest({ command: ["a", ""], cwd: "", env: { A: "" } }, "/w");
  assertEquals(request.command, ["a", ""]);
});
