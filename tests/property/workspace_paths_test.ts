// Properties of path handling: the policy by itself, and resolution with the kernel as the oracle.
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { AgentError } from "../../src/errors.ts";
import { PathPolicy } from "../../src/workspace/path_policy.ts";
import { createSandbox, kindOf, readText, SECRET } from "../integration/workspace_sandbox.ts";

const part = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom("..", ".", "", "a", "ws", "srv", "wsx", "state") },
  { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 300 }) },
);
const anyPath = fc.tuple(fc.boolean(), fc.array(part, { maxLength: 12 })).map(([absolute, parts]) =>
  (absolute ? "/" : "") + parts.join("/")
);

Deno.test("what the policy allows is never outside, whatever the path", {
  permissions: "none",
}, () => {
  const policy = new PathPolicy({
    root: "/srv/ws",
    workspace: "/srv/ws/a",
    readPaths: ["/srv/docs"],
    forbidden: ["/srv/ws/state"],
  });
  fc.assert(
    fc.property(anyPath, (path) => {
      let parsed;
      try {
        parsed = policy.parse(path);
      } catch (error) {
        assert(error instanceof AgentError && error.kind === "invalid-argument");
        return;
      }
      assert(parsed.components.every((name) => name !== "" && name !== "." && !/[/\0]/.test(name)));
      const stack: string[] = [];
      for (const name of parsed.components) name === ".." ? stack.pop() : stack.push(name);
      const lexical = "/" + stack.join("/");
      // An independent reading of the rule.
      const isInside = (stack[0] === "srv" && stack[1] === "ws") && stack[2] !== "state";
      assertEquals(policy.allows(lexical, "write"), isInside);
      assertEquals(
        policy.allows(lexical, "read"),
        isInside || (stack[0] === "srv" && stack[1] === "docs"),
      );
    }),
    { numRuns: 3000 },
  );
});

/** Names of the small world in which links point anywhere. */
const NAMES = ["a", "b", "c", "d"];
const target = fc.tuple(
  fc.constantFrom("", "", "ROOT/", "OUTSIDE/", "/"),
  fc.array(fc.constantFrom("..", "dir1", "dir2", ...NAMES), { maxLength: 3 }),
  fc.constantFrom("", "file", "secret", "../outside", "dir1", "."),
).map(([base, parts, last]) => base + [...parts, last].join("/"));
const world = fc.record({
  links: fc.array(
    fc.tuple(fc.constantFrom("", "dir1/", "dir1/dir2/"), fc.constantFrom(...NAMES), target),
    { minLength: 4, maxLength: 12 },
  ),
  paths: fc.array(
    fc.tuple(
      fc.array(fc.constantFrom("..", ".", "dir1", "dir2", "../ws", ...NAMES, ...NAMES), {
        maxLength: 4,
      }),
      fc.constantFrom("file", "secret", ...NAMES),
    ).map(([parts, last]) => [...parts, last].join("/")),
    { minLength: 30, maxLength: 60 },
  ),
});

Deno.test("among random links, a read gives what the kernel finds, or refuses what is outside", async () => {
  await using sandbox = await createSandbox();
  const { workspace, root, outside } = sandbox;
  let reads = 0;
  let refusals = 0;
  await fc.assert(
    fc.asyncProperty(world, async ({ links, paths }) => {
      for await (const entry of Deno.readDir(root)) {
        await Deno.remove(`${root}/${entry.name}`, { recursive: true });
      }
      await Deno.mkdir(`${root}/dir1/dir2`, { recursive: true });
      for (const directory of ["", "dir1/", "dir1/dir2/"]) {
        await Deno.writeTextFile(`${root}/${directory}file`, `inside ${directory}`);
      }
      for (const [directory, name, to] of links) {
        const resolved = to.replace("ROOT", root).replace("OUTSIDE", outside);
        await Deno.symlink(resolved, `${root}/${directory}${name}`).catch(() => {});
      }
      // One shell asks the kernel about all paths: the content of the file, or nothing.
      const script = 'for p; do [ -f "$p" ] && cat "$p" 2>/dev/null; echo; done';
      const { stdout } = await new Deno.Command("sh", {
        args: ["-c", script, "sh", ...paths],
        cwd: root,
      }).output();
      const answers = new TextDecoder().decode(stdout).split("\n");
      for (const [index, path] of paths.entries()) {
        const expected = answers[index]!;
        let content = "";
        const kind = await kindOf(async () => {
          content = await readText(workspace, path);
        });
        if (expected.startsWith("inside")) {
          assertEquals(kind, "ok", path);
          assertEquals(content, expected, path);
          reads++;
        } else if (expected === SECRET) {
          assertEquals(kind, "permission-denied", path);
          refusals++;
        } else if (kind === "ok") {
          // Outside, nothing is looked at: "../no-such/../ws/file" is taken by its text alone.
          assert(path.includes("..") && content.startsWith("inside"), path);
        }
      }
    }),
    {
      numRuns: 80,
      // At least one of each kind, whatever chance brings.
      examples: [[{
        links: [["", "a", "OUTSIDE/secret"], ["dir1/", "b", "../../outside"]],
        paths: ["a", "file", "dir1/file", "dir1/b/secret"],
      }]],
    },
  );
  assert(reads > 20 && refusals > 0, `too few of a kind: ${reads} reads, ${refusals} refusals`);
});
