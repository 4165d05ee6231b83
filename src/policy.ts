// `--check-policy`: what the agent may do here, what it will refuse, and whether that fits its settings.
// Tries things as the agent would at start; must not serve, and must not know gRPC.
import { systemClock } from "./clock.ts";
import type { AgentConfig } from "./config.ts";
import { takeEnvironment } from "./environment.ts";
import { osErrorCode } from "./errors.ts";
import { createLogger, type Logger } from "./log.ts";
import { createDenoSpawner } from "./process/deno_spawner.ts";
import { openProcessKiller } from "./process/kill/process_killer.ts";
import { isCannotRun } from "./process/spawner.ts";
import { MARKER_NAME } from "./process/start_request.ts";
import { requireRunAs } from "./process/run_as.ts";
import { openStateDir, StateDirInUse } from "./process/state_dir.ts";
import { VERSION } from "./version.ts";
import { Workspace } from "./workspace/workspace.ts";

/** What was found out, in the order in which it is printed. */
class Report {
  readonly permitted: string[] = [];
  readonly tested: string[] = [];
  readonly refused: string[] = [];
  readonly contradictions: string[] = [];

  toText(): string {
    const parts: [string, readonly string[]][] = [
      ["permitted", this.permitted],
      ["tried", this.tested],
      ["refused", this.refused],
      ["contradictions", this.contradictions],
    ];
    return parts.filter(([, lines]) => lines.length > 0)
      .map(([title, lines]) => `${title}:\n${lines.map((line) => `  ${line}\n`).join("")}`)
      .join("");
  }
}

/**
 * Prints the policy to stdout.
 * @returns the exit code: 0, or 1 where the permissions, the settings and the machine contradict each other
 */
export async function checkPolicy(
  config: AgentConfig,
  print: (text: string) => void = console.log,
): Promise<number> {
  const report = new Report();
  const log = createLogger("warn", (line) => {
    report.tested.push(`warning: ${(JSON.parse(line) as { msg: string }).msg}`);
  });
  takeEnvironment(config, log);
  checkAddresses(config, report);
  checkPaths(config, report);
  checkRun(config, report);
  checkStateDir(config, log, report);
  if (config.enableFilesystem) await checkFiles(config, log, report);
  if (config.enableProcess) await checkProcesses(config, log, report);
  describeRefusals(config, report);
  if (config.isStateTemporary) await Deno.remove(config.stateDir, { recursive: true });
  const verdict = report.contradictions.length === 0 ? "consistent" : "contradictory";
  print(
    `ateenvd ${VERSION} on Deno ${Deno.version.deno}: the policy is ${verdict}\n${report.toText()}`
      .trimEnd(),
  );
  return report.contradictions.length === 0 ? 0 : 1;
}

function isGranted(descriptor: Deno.PermissionDescriptor): boolean {
  return Deno.permissions.querySync(descriptor).state === "granted";
}

function checkAddresses(config: AgentConfig, report: Report): void {
  const { hostname, port } = config.listen;
  const address = `${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
  const wanted = [address, ...(config.unixPath === undefined ? [] : [`unix:${config.unixPath}`])];
  for (const host of wanted) {
    const what = `listen on ${host}`;
    if (host.startsWith("unix:") || isGranted({ name: "net", host })) report.permitted.push(what);
    else report.contradictions.push(`no permission to ${what}`);
  }
}

function checkPaths(config: AgentConfig, report: Report): void {
  const { tls } = config;
  const secrets = [config.tokenFile, tls?.certFile, tls?.keyFile, tls?.clientCaFile];
  const written = [config.stateDir, config.workspace];
  if (config.enableFilesystem) written.push(config.root);
  const read = [...written, ...config.readPaths, ...secrets.filter((path) => path !== undefined)];
  for (const [name, paths] of [["read", read], ["write", written]] as const) {
    for (const path of new Set(paths)) {
      const isPermitted = isGranted({ name, path });
      (isPermitted ? report.permitted : report.contradictions).push(
        isPermitted ? `${name} ${path}` : `no permission to ${name} ${path}`,
      );
    }
    if (config.root !== "/" && isGranted({ name })) {
      report.contradictions.push(
        `permission to ${name} everything, wider than --root ${config.root}: start through src/start.sh`,
      );
    }
  }
}

function checkRun(config: AgentConfig, report: Report): void {
  const all = isGranted({ name: "run" });
  if (!config.enableProcess) {
    if (all) report.contradictions.push("permission to run programs, and --enable-process=false");
    return;
  }
  if (config.allowRun === undefined) {
    if (all) report.permitted.push("run all programs");
    else report.contradictions.push("processes are enabled, and there is no permission to run all");
    return;
  }
  if (all) report.contradictions.push("permission to run all programs, wider than --allow-run");
  if (config.allowRun.length === 0) {
    report.contradictions.push("processes are enabled, and --allow-run lists no program");
  }
  for (const command of config.allowRun) {
    // Deno looks a name up in PATH when it starts, and drops what it does not find.
    if (isGranted({ name: "run", command })) report.permitted.push(`run ${command}`);
    else {report.contradictions.push(
        `${command} of --allow-run: not found in PATH, or not permitted`,
      );}
  }
}

function checkStateDir(config: AgentConfig, log: Logger, report: Report): void {
  try {
    openStateDir({ path: config.stateDir, isShared: config.isStateShared, log })[Symbol.dispose]();
    report.tested.push(`the state directory ${config.stateDir} can be used`);
  } catch (error) {
    // Next to a running agent, which has it: that is no contradiction.
    if (error instanceof StateDirInUse) {
      report.tested.push(`the state directory ${config.stateDir} is in use by an agent`);
    } else report.contradictions.push(describe(error));
  }
}

async function checkFiles(config: AgentConfig, log: Logger, report: Report): Promise<void> {
  const { root, workspace, readPaths, stateDir } = config;
  try {
    const probe = await Deno.makeTempFile({ dir: workspace, prefix: ".ateenv-check-" });
    await Deno.remove(probe);
    report.tested.push(`the workspace ${workspace} can be written to`);
  } catch (error) {
    report.contradictions.push(
      `the workspace ${workspace} cannot be written to: ${osErrorCode(error) ?? describe(error)}`,
    );
  }
  await using files = new Workspace({
    workspace,
    root,
    readPaths,
    forbidden: [],
    stateDir,
    fsync: false,
    log,
  });
  const { pinning, detail } = await files.selfTest();
  if (pinning) report.tested.push(`paths are confined: ${detail}`);
  else report.contradictions.push(`paths cannot be confined here: ${detail}`);
}

async function checkProcesses(config: AgentConfig, log: Logger, report: Report): Promise<void> {
  await using killer = await openProcessKiller({
    clock: systemClock,
    log,
    marker: MARKER_NAME,
    others: () => [],
    // The one that an agent makes and uses: it stays.
    fifoPath: `${config.stateDir}/fifo`,
    cgroupPath: config.cgroup,
  }).catch((error) => void report.contradictions.push(describe(error)));
  if (killer === undefined) return;
  const reach = {
    cgroup: "all descendants, through a cgroup of their own",
    tree: "all descendants",
    group: "the process group only",
    child: "the first process only",
  }[killer.reach];
  const reason = killer.reason === undefined ? "" : ` (${killer.reason})`;
  report.tested.push(`a kill reaches ${reach}${reason}`);
  for (const program of config.allowRun ?? []) await checkListedPath(program, report);
  if (config.runAs !== undefined) await checkRunAs(config, report);
}

/** Deno permits a path whether or not it is there. Asked of a shell, where one may be run. */
async function checkListedPath(program: string, report: Report): Promise<void> {
  if (!program.startsWith("/") || !isGranted({ name: "run", command: "sh" })) return;
  const look = ["sh", "-c", 'test -x "$1"', "sh", program];
  if (await exitCodeOf(look, undefined, "/") !== 0) {
    report.contradictions.push(`${program} of --allow-run: no such program`);
  }
}

async function checkRunAs(config: AgentConfig, report: Report): Promise<void> {
  const { uid, gid } = config.runAs!;
  if (!isGranted({ name: "run", command: "sh" })) {
    report.tested.push(`--run-as ${uid}:${gid} was not tried: sh is not in --allow-run`);
    return;
  }
  try {
    await requireRunAs(createDenoSpawner(config.runAs), config.runAs!, config.allowRun);
    const code = await exitCodeOf(["sh", "-c", "test -w ."], config.runAs, config.workspace);
    if (code === 0) report.tested.push(`a process runs as ${uid}:${gid} and can write here`);
    else report.tested.push(`a process runs as ${uid}:${gid}, and cannot write to the workspace`);
  } catch (error) {
    report.contradictions.push(describe(error));
  }
}

/** @throws what the spawner throws, and an Error where the program cannot be run */
async function exitCodeOf(command: string[], runAs: AgentConfig["runAs"], cwd: string) {
  const child = await createDenoSpawner(runAs).spawn({ command, cwd, env: {} });
  if (isCannotRun(child)) throw new Error(child.reason);
  await Promise.all([child.stdout.cancel(), child.stderr.cancel()]);
  return (await child.exit).code;
}

function describeRefusals(config: AgentConfig, report: Report): void {
  const say = (line: string) => report.refused.push(line);
  if (config.auth === "token") say("calls without the bearer token: UNAUTHENTICATED");
  if (config.auth === "mtls") say("connections without a client certificate");
  if (!config.enableProcess) say("ProcessService: UNIMPLEMENTED");
  else if (config.allowRun !== undefined) {
    say("programs that --allow-run does not list, and LD_* in a request: PERMISSION_DENIED");
  }
  if (!config.enableFilesystem) say("FileSystemService: UNIMPLEMENTED");
  else if (config.root !== "/") {
    say(`files outside ${[config.root, ...config.readPaths].join(", ")}: PERMISSION_DENIED`);
  }
  say("connections of the agent's own, once it listens");
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
