// parseConfig: precedence, defaults, and all mistakes at once.
import { assert, assertEquals } from "@std/assert";
import { type AgentConfig, helpText, isLoopback, parseConfig } from "../../src/config.ts";
import { SETTINGS } from "../../src/settings.ts";

const STATE = ["--state-dir", "/state"];

function parse(args: string[], env: Record<string, string> = {}) {
  return parseConfig(args, (name) => env[name]);
}

function configOf(args: string[], env: Record<string, string> = {}): AgentConfig {
  const command = parse([...STATE, ...args], env);
  assert(command.action === "serve", JSON.stringify(command));
  return command.config;
}

function mistakesOf(args: string[], env: Record<string, string> = {}): readonly string[] {
  const command = parse(args, env);
  assert(command.action === "error", JSON.stringify(command));
  return command.mistakes;
}

function test(name: string, fn: () => void) {
  Deno.test(`config: ${name}`, { permissions: "none" }, fn);
}

test("defaults", () => {
  const config = configOf([]);
  assertEquals(config.listen, { hostname: "127.0.0.1", port: 8080 });
  assertEquals(config.workspace, "workspace");
  assertEquals(config.root, "workspace");
  assertEquals(config.auth, "none");
  assertEquals(config.maxProcesses, undefined);
  assertEquals(config.spoolLimitBytes, 1024 ** 3);
  assertEquals(config.retain, 1000);
  assertEquals(config.retainForMs, 3_600_000);
  assertEquals(config.maxMessageBytes, 16 * 1024 ** 2);
  assertEquals(config.shutdownGraceMs, 10_000);
  assertEquals(config.enableProcess, true);
  assert(Object.isFrozen(config));
});

/** Every public setting: a flag, its variables, and where the value must show. */
const CASES: Record<string, [flag: string, expected: Partial<Record<keyof AgentConfig, unknown>>]> =
  {
    listen: ["127.0.0.2:81", { listen: { hostname: "127.0.0.2", port: 81 } }],
    unix: ["/run/a.sock", { unixPath: "/run/a.sock" }],
    workspace: ["/w", { workspace: "/w", root: "/w" }],
    root: ["/", { root: "/" }],
    readPath: ["/data", { readPaths: ["/data"] }],
    stateDir: ["/state", { stateDir: "/state" }],
    enableProcess: ["false", { enableProcess: false }],
    enableFilesystem: ["false", { enableFilesystem: false }],
    allowRun: ["sh,python3", { allowRun: ["sh", "python3"] }],
    runAs: ["1000:2000", { runAs: { uid: 1000, gid: 2000 } }],
    auth: ["none", { auth: "none" }],
    tokenFile: ["/t", { tokenFile: "/t", auth: "token" }],
    tlsCert: ["/c", { tls: { certFile: "/c", keyFile: "/k" } }],
    tlsKey: ["/k2", { tls: { certFile: "/c", keyFile: "/k2" } }],
    tlsClientCa: [
      "/ca",
      { auth: "mtls", tls: { certFile: "/c", keyFile: "/k", clientCaFile: "/ca" } },
    ],
    maxProcesses: ["7", { maxProcesses: 7 }],
    processTimeout: ["5m", { processTimeoutMs: 300_000 }],
    killGrace: ["250ms", { killGraceMs: 250 }],
    cgroup: ["/sys/fs/cgroup/x", { cgroup: "/sys/fs/cgroup/x" }],
    outputLimit: ["64KiB", { outputLimitBytes: 65536 }],
    spoolLimit: ["2GiB", { spoolLimitBytes: 2 * 1024 ** 3 }],
    retain: ["5", { retain: 5 }],
    retainFor: ["2h", { retainForMs: 7_200_000 }],
    maxMessage: ["1MiB", { maxMessageBytes: 1024 ** 2 }],
    fsync: ["true", { fsync: true }],
    shutdownGrace: ["3s", { shutdownGraceMs: 3000 }],
    logLevel: ["debug", { logLevel: "debug" }],
  };

/** What a setting needs beside it to be valid. */
function companions(name: string): string[] {
  if (name === "runAs") return ["--auth", "none"];
  if (name === "tlsCert") return ["--tls-key", "/k"];
  if (name === "tlsKey") return ["--tls-cert", "/c"];
  if (name === "tlsClientCa") return ["--tls-cert", "/c", "--tls-key", "/k"];
  return [];
}

for (const [name, row] of Object.entries(SETTINGS)) {
  if ("isInternal" in row && row.isInternal) continue;
  test(`${name} by each flag and each variable`, () => {
    const [text, expected] = CASES[name]!;
    const check = (config: AgentConfig) => {
      for (const [key, value] of Object.entries(expected)) {
        assertEquals(config[key as keyof AgentConfig] as unknown, value, key);
      }
    };
    for (const flag of row.flags) {
      check(configOf([...companions(name), `--${flag}`, text]));
      check(configOf([...companions(name), `--${flag}=${text}`]));
    }
    for (const variable of row.variables.filter((variable) => variable !== "PORT")) {
      const command = parse([...(name === "stateDir" ? [] : STATE), ...companions(name)], {
        [variable]: text,
      });
      assert(command.action === "serve", JSON.stringify(command));
      check(command.config);
    }
    assert(helpText().includes(`--${row.flags[0]}`));
  });
}

test("PORT listens on every interface", () => {
  assertEquals(configOf(["--auth", "none"], { PORT: "80" }).listen, {
    hostname: "0.0.0.0",
    port: 80,
  });
  assertEquals(configOf(["--auth", "none"], { PORT: "80", ATEENV_LISTEN: "[::1]:9" }).listen, {
    hostname: "::1",
    port: 9,
  });
});

test("a flag wins over its variable, and variables win in order", () => {
  assertEquals(configOf(["--workspace", "/f"], { ATEENV_WORKSPACE: "/a" }).workspace, "/f");
  assertEquals(
    configOf([], { WORKDIR: "/c", WORKSPACE: "/b", ATEENV_WORKSPACE: "/a" }).workspace,
    "/a",
  );
  assertEquals(configOf([], { WORKDIR: "/c", WORKSPACE: "/b" }).workspace, "/b");
  assertEquals(configOf([], { WORKDIR: "/c", WORKSPACE: "" }).workspace, "/c");
});

test("a list of paths by variable and by repeated flag", () => {
  assertEquals(configOf([], { ATEENV_READ_PATHS: "/a:/b:" }).readPaths, ["/a", "/b"]);
  assertEquals(configOf(["--read-path", "/a", "--read-path=/b"]).readPaths, ["/a", "/b"]);
});

test("a boolean flag needs no value", () => {
  assertEquals(configOf(["--fsync", "--retain", "3"]).fsync, true);
  assertEquals(configOf(["--fsync=false"]).fsync, false);
});

test("all mistakes are reported at once", () => {
  const mistakes = mistakesOf(
    [
      "--listen",
      "nowhere",
      "--bogus",
      "--retain",
      "many",
      "--output-limit",
      "1KiB",
      "--kill-grace",
    ],
    { ATEENV_LOG_LEVEL: "loud" },
  );
  for (
    const part of [
      "--listen: want ADDR:PORT",
      "--bogus: no such flag",
      "--retain: want a whole number",
      "--output-limit: want 0 or at least 64KiB",
      "--kill-grace: the value is missing",
      "ATEENV_LOG_LEVEL: want error, warn, info, debug",
      "--state-dir: not given",
    ]
  ) assert(mistakes.some((mistake) => mistake.includes(part)), `${part} in ${mistakes}`);
});

test("two flags that disagree are a mistake, a repeated one is not", () => {
  assertEquals(mistakesOf(["--state-dir", "/a", "--log-dir", "/b"]).length, 1);
  assertEquals(configOf(["--retain", "3", "--retain=3"]).retain, 3);
  assertEquals(mistakesOf([...STATE, "--retain", "3", "--retain", "4"]).length, 1);
});

test("beyond loopback and with --run-as, the way in must be said", () => {
  assertEquals(mistakesOf([...STATE, "--listen", "0.0.0.0:80"]).length, 1);
  assertEquals(mistakesOf([...STATE, "--listen", ":80"]).length, 1);
  assertEquals(mistakesOf([...STATE, "--run-as", "1000"]).length, 1);
  assertEquals(configOf(["--listen", "0.0.0.0:80", "--auth", "none"]).auth, "none");
  assertEquals(configOf(["--listen", "0.0.0.0:80", "--token-file", "/t"]).auth, "token");
});

test("combinations that contradict themselves", () => {
  const tls = ["--tls-cert", "/c", "--tls-key", "/k"];
  for (
    const args of [
      ["--tls-cert", "/c"],
      ["--tls-client-ca", "/ca"],
      ["--auth", "token"],
      ["--auth", "mtls", ...tls],
      ["--auth", "none", "--token-file", "/t"],
      ["--auth", "none", "--tls-client-ca", "/ca", ...tls],
      ["--auth", "mtls", "--token-file", "/t", "--tls-client-ca", "/ca", ...tls],
    ]
  ) assertEquals(mistakesOf([...STATE, ...args]).length, 1, args.join(" "));
});

test("help, version and check-policy", () => {
  assertEquals(parse(["--help", "--bogus"]).action, "help");
  assertEquals(parse(["--version"]).action, "version");
  assertEquals(parse([...STATE, "--check-policy"]).action, "check-policy");
});

test("isLoopback", () => {
  for (const host of ["127.0.0.1", "127.9.9.9", "::1", "localhost"]) assert(isLoopback(host), host);
  for (const host of ["0.0.0.0", "10.0.0.1", "::", "127.evil.example"]) {
    assert(!isLoopback(host), host);
  }
});
