// The parts of the CLI that only compute.
import { assert, assertEquals, assertThrows } from "@std/assert";
import { AteenvError } from "../../../src/client/error.ts";
import { Asks, SAME_ASK_MS } from "../../../src/cli/asks.ts";
import { toCliError, toJson, toLine } from "../../../src/cli/failure.ts";
import { baseName, directoryOf, joinPath } from "../../../src/cli/local_path.ts";
import {
  collectVariable,
  parseDuration,
  parseMode,
  parseOffsets,
  remotePath,
} from "../../../src/cli/options.ts";
import { formatBytes, formatProgress } from "../../../src/cli/progress.ts";
import { staysInside, toComponents } from "../../../src/cli/tar_names.ts";

const PURE = { permissions: "none" } as const;

Deno.test("durations", PURE, () => {
  assertEquals(["500ms", "30s", "1.5m", "2h"].map(parseDuration), [500, 30_000, 90_000, 7_200_000]);
  for (const text of ["", "3", "-1s", "0s", "1d", "s", "1 s"]) {
    assertThrows(() => parseDuration(text), Error, "500ms");
  }
});

Deno.test("signals that come together are one ask", PURE, () => {
  const asks = new Asks();
  const state = () => [asks.interrupt.aborted, asks.insist.aborted];
  assertEquals(state(), [false, false]);
  for (const ms of [0, 3, SAME_ASK_MS - 1]) assertEquals(asks.add(130, ms), undefined);
  assertEquals(state(), [true, false]);
  assertEquals(asks.interrupt.reason.exitCode, 130);
  for (const ms of [SAME_ASK_MS, SAME_ASK_MS + 3]) assertEquals(asks.add(143, ms), undefined);
  assertEquals([...state(), asks.insist.reason.exitCode], [true, true, 143]);
  assertEquals(asks.add(130, 2 * SAME_ASK_MS), "exit");
});

Deno.test("variables, offsets, modes, remote paths", PURE, () => {
  assertEquals(collectVariable("B==", collectVariable("A=1")), { A: "1", B: "=" });
  for (const text of ["", "A", "=x"]) assertThrows(() => collectVariable(text), Error, "NAME=");
  assertEquals(parseOffsets("7"), { stdoutOffset: 7, stderrOffset: 7 });
  assertEquals(parseOffsets("7,0"), { stdoutOffset: 7, stderrOffset: 0 });
  for (const text of ["", "-1", "1,", "1,2,3", "1e3"]) {
    assertThrows(() => parseOffsets(text), Error, "4096");
  }
  assertEquals(["644", "0755", "7777"].map(parseMode), [0o644, 0o755, 0o7777]);
  for (const text of ["", "8", "77777", "u+x"]) assertThrows(() => parseMode(text), Error, "644");
  assertEquals([":a", "a", "./:a"].map(remotePath), ["a", "a", "./:a"]);
});

Deno.test("names of local paths", PURE, () => {
  assertEquals(["a", "a/b", "a/b/", "/", ".", "..", "a/."].map(baseName), [
    "a",
    "b",
    "b",
    "",
    "",
    "",
    "",
  ]);
  assertEquals(["a", "a/b", "a/b/", "/a", "/", "a/"].map(directoryOf), [
    ".",
    "a",
    "a",
    "/",
    "/",
    ".",
  ]);
  assertEquals(joinPath("a/", "b"), "a/b");
  assertEquals(joinPath("/", "b"), "/b");
  assertEquals(joinPath(".", "b"), "./b");
});

Deno.test("names of archive entries", PURE, () => {
  assertEquals(toComponents("./a//b/"), ["a", "b"]);
  assertEquals(toComponents("./"), []);
  for (const name of ["/a", "..", "a/..", "a/../b", "\uFFFD"]) {
    assertThrows(() => toComponents(name), Error, "refused");
  }
});

Deno.test("links that stay inside", PURE, () => {
  const at = (path: string, target: string) => staysInside(path.split("/"), target);
  assert(at("a", "b") && at("a", ".") && at("a/b", "../c") && at("a/b", "..") && at("a", "x/./y"));
  for (
    const [path, target] of [
      ["a", "/b"],
      ["a", ".."],
      ["a", "../b"],
      ["a/b", "../../c"],
      ["a/b", "x/../.."],
      ["a/b", "x/.."],
      ["a", ""],
      ["a", "\0"],
    ] as const
  ) assert(!at(path, target), `${path} -> ${target}`);
});

Deno.test("failures are one line with advice, or one object", PURE, () => {
  const error = toCliError(new AteenvError("unauthenticated", "no\ntoken."));
  assertEquals(
    toLine(error),
    "ateenv: no token; give the agent's token with --token-file or ATEENV_TOKEN_FILE\n",
  );
  assertEquals(JSON.parse(toJson(error)).error.kind, "unauthenticated");
  const tls = toCliError(new AteenvError("unavailable", "cannot reach x: self-signed certificate"));
  assert(toLine(tls).includes("--tls-ca"));
  assertEquals(toLine(toCliError(new Error("odd"))), "ateenv: odd\n");
  assertEquals(error.exitCode, 125);
});

Deno.test("bytes and progress", PURE, () => {
  assertEquals([0, 1023, 1024, 1536, 150 * 2 ** 20, 2 ** 50].map(formatBytes), [
    "0 B",
    "1023 B",
    "1.0 KiB",
    "1.5 KiB",
    "150 MiB",
    "1024 TiB",
  ]);
  assertEquals(
    formatProgress("f", 2 ** 20, 4 * 2 ** 20, 1_000),
    "f  [######------------------]  25%  1.0 MiB of 4.0 MiB  1.0 MiB/s  00:03 left",
  );
  assertEquals(
    formatProgress("f", 0, 0, 0),
    `f  [${"#".repeat(24)}] 100%  0 B of 0 B  0 B/s  --:-- left`,
  );
  assertEquals(formatProgress("f", 2 ** 20, undefined, 500), "f  1.0 MiB  2.0 MiB/s");
  // More than was announced: a file that grows.
  assert(formatProgress("f", 20, 10, 1).includes("100%"));
});
