// The lexical policy: no disk is touched.
import { assert, assertEquals, assertThrows } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { isWithin, joinPath, parentPath, PathPolicy } from "../../../src/workspace/path_policy.ts";

const policy = new PathPolicy({
  root: "/srv/ws",
  workspace: "/srv/ws/project",
  readPaths: ["/usr/share"],
  forbidden: ["/srv/ws/.state", "/etc/token"],
  aliases: [{ from: "/data", to: "/srv/ws" }],
});

Deno.test("a relative path is taken from the workspace", { permissions: "none" }, () => {
  assertEquals(policy.parse("a/b").components, ["srv", "ws", "project", "a", "b"]);
});

Deno.test("empty components and dots go, double dots stay", { permissions: "none" }, () => {
  assertEquals(policy.parse("/srv//ws/./a/../b").components, ["srv", "ws", "a", "..", "b"]);
});

Deno.test("an alias stands for its target, at a component's border only", {
  permissions: "none",
}, () => {
  assertEquals(policy.parse("/data/a").components, ["srv", "ws", "a"]);
  assertEquals(policy.parse("/database/a").components, ["database", "a"]);
});

Deno.test("a path that can only mean a directory is known as such", { permissions: "none" }, () => {
  for (const path of ["a/", "a/.", "a/..", ".", "..", "/", "a//"]) {
    assert(policy.parse(path).meansDirectory, path);
  }
  for (const path of ["a", "a/...", "a/.b", " "]) assert(!policy.parse(path).meansDirectory, path);
});

Deno.test("what no path can be is an invalid argument", { permissions: "none" }, () => {
  const cases: [string, string][] = [
    ["", "file path cannot be empty"],
    ["a\0b", "NUL"],
    ["x".repeat(256), "255 bytes"],
    ["é".repeat(128), "255 bytes"],
    ["a/".repeat(2048), "4095 bytes"],
    ["é/".repeat(1400), "4095 bytes"],
  ];
  for (const [path, message] of cases) {
    assertEquals(
      assertThrows(() => policy.parse(path), AgentError, message).kind,
      "invalid-argument",
    );
  }
  policy.parse("x".repeat(255));
  policy.parse("é".repeat(127));
  policy.parse("a/".repeat(2047));
});

Deno.test("roots, read paths and what is the agent's own", { permissions: "none" }, () => {
  const cases: [string, boolean, boolean][] = [
    // path, readable, writable
    ["/srv/ws", true, true],
    ["/srv/ws/a", true, true],
    ["/srv/ws/a (deleted)", true, true],
    ["/srv/ws (deleted)", false, false],
    ["/srv/wsx", false, false],
    ["/srv", false, false],
    ["/", false, false],
    ["/usr/share/dict", true, false],
    ["/usr/sharex", false, false],
    ["/srv/ws/.state", false, false],
    ["/srv/ws/.state/tmp/x", false, false],
    ["/srv/ws/.state2", true, true],
  ];
  for (const [path, readable, writable] of cases) {
    assertEquals(policy.allows(path, "read"), readable, path);
    assertEquals(policy.allows(path, "write"), writable, path);
  }
});

Deno.test(
  "the root / holds everything but what is the agent's own",
  { permissions: "none" },
  () => {
    const open = new PathPolicy({
      root: "/",
      workspace: "/srv/ws",
      readPaths: [],
      forbidden: ["/var/lib/ateenv", "/etc/token"],
    });
    assert(open.allows("/etc/passwd", "write"));
    assert(open.allows("/", "read"));
    assert(!open.allows("/etc/token", "read"));
    assert(!open.allows("/var/lib/ateenv/tmp", "write"));
  },
);

Deno.test("a refusal names the request's path and the root", { permissions: "none" }, () => {
  const error = policy.refusal("../x");
  assertEquals(error.kind, "permission-denied");
  assertEquals(
    error.message,
    'access denied: path "../x" is outside sandbox root directory "/srv/ws"',
  );
});

Deno.test("configured paths have to be absolute and canonical", { permissions: "none" }, () => {
  for (const root of ["", "a", "/a/", "/a//b", "/a/./b", "/a/..", "/a\0", "/a\ufffd", "//"]) {
    assertThrows(
      () => new PathPolicy({ root, workspace: "/", readPaths: [], forbidden: [] }),
      AgentError,
      "canonical",
    );
  }
  for (const root of ["/", "/a", "/a.b/..c/...", "/a b"]) {
    new PathPolicy({ root, workspace: "/", readPaths: [], forbidden: [] });
  }
});

Deno.test("path arithmetic", { permissions: "none" }, () => {
  assertEquals(joinPath("/", "a"), "/a");
  assertEquals(joinPath("/a", "b"), "/a/b");
  assertEquals(["/", "/a", "/a/b"].map(parentPath), ["/", "/", "/a"]);
  assert(isWithin("/", "/x") && isWithin("/a", "/a") && isWithin("/a", "/a/b"));
  assert(!isWithin("/a", "/ab") && !isWithin("/a", "/"));
});
