// `ateenv doctor`: everything that has to work, tried once, one line each.
// Must leave the sandbox as it was.
import type { AteenvClient } from "../client/client.ts";
import { AteenvError } from "../client/error.ts";
import { type Health, readHealth } from "../client/readyz.ts";
import { VERSION } from "../version.ts";
import { type Color, painter } from "./color.ts";
import { CliError, toCliError } from "./failure.ts";
import { runTool, ToolMissing } from "./sandbox_tools.ts";
import type { Session } from "./session.ts";
import { writeText } from "./stdio.ts";

/** `off` is a choice of who started the agent: no failure. */
type Verdict = "ok" | "off" | "warn" | "fail";

/** What one check found. */
interface Finding {
  readonly verdict: Verdict;
  readonly detail: string;
}

const COLORS: Readonly<Record<Verdict, Color>> = {
  ok: "green",
  off: "yellow",
  warn: "yellow",
  fail: "red",
};

const PROBE_MS = 1_500;
const STEP_MS = 10_000;

/** A clock that is wrong by more breaks certificates and confuses logs. HTTP dates are whole seconds. */
const MAX_CLOCK_DIFFERENCE_MS = 5_000;

/** The API has no call that removes a file: where no program can either, this one stays, always the same. */
const PROBE_FILE = ".ateenv-doctor";

/** Programs that remove it, the first that may be run. */
const REMOVERS: readonly (readonly string[])[] = [
  ["rm", "-f", PROBE_FILE],
  ["sh", "-c", `rm -f ${PROBE_FILE}`],
  ["unlink", PROBE_FILE],
];

/** An id that no agent makes. */
const NO_PROCESS = "ateenv-doctor";

/** 0 when nothing failed, else 1. */
export async function doctor(session: Session): Promise<number> {
  const report = new Report(session);
  const health = await report.check("connect", () => probe(session));
  if (health !== undefined) {
    await report.check("health", () => checkHealth(health));
    await report.check("clock", () => checkClock(health));
  }
  const client = await report.check("grpc", async () => {
    const client = await session.connect();
    return [{ verdict: "ok", detail: "the agent answers calls" }, client];
  });
  if (client !== undefined) {
    await using _ = client;
    await report.check("version", () => checkVersion(client));
    const authorized = await report.check("auth", () => checkAuth(session, client));
    if (authorized) {
      await report.check("process", () => checkProcess(session, client));
      await report.check("files", () => checkFiles(session, client));
    }
  }
  return await report.end();
}

/** Lines as they come for people, one object at the end for programs. */
class Report {
  readonly #session: Session;
  readonly #checks: { check: string; verdict: Verdict; detail: string }[] = [];

  constructor(session: Session) {
    this.#session = session;
  }

  async check<T>(
    name: string,
    action: () => Promise<[Finding, T]> | [Finding, T],
  ): Promise<T | undefined> {
    const { io, json } = this.#session;
    let finding: Finding;
    let result: T | undefined;
    try {
      [finding, result] = await action();
    } catch (error) {
      if (io.interrupt.aborted) throw error;
      const { message, advice } = toCliError(error);
      finding = {
        verdict: "fail",
        detail: advice === undefined ? message : `${message}; ${advice}`,
      };
    }
    this.#checks.push({ check: name, ...finding });
    if (!json) {
      const verdict = painter(io, io.stdout)(COLORS[finding.verdict], finding.verdict.padEnd(4));
      await writeText(io.stdout, `${verdict}  ${name.padEnd(7)}  ${finding.detail}\n`);
    }
    return result;
  }

  async end(): Promise<number> {
    const ok = this.#checks.every(({ verdict }) => verdict !== "fail");
    await this.#session.answer({ ok, checks: this.#checks }, "");
    return ok ? 0 : 1;
  }
}

async function probe(session: Session): Promise<[Finding, Health]> {
  const { address, tls } = await session.target();
  const startMs = performance.now();
  const signal = AbortSignal.any([session.io.interrupt, AbortSignal.timeout(PROBE_MS)]);
  let health: Health;
  try {
    health = await readHealth(address, tls, signal);
  } catch (error) {
    if (!(error instanceof AteenvError) || error.kind !== "deadline-exceeded") throw error;
    throw new CliError(`no answer from ${address.display} within ${PROBE_MS} ms`, {
      advice: "check the address, and whether a firewall drops the connection",
    });
  }
  const elapsedMs = Math.round(performance.now() - startMs);
  const how = address.tls ? ", TLS" : "";
  return [{ verdict: "ok", detail: `${address.display}${how}, ${elapsedMs} ms` }, health];
}

function checkHealth({ ready, message }: Health): [Finding, boolean] {
  return [{ verdict: ready ? "ok" : "fail", detail: ready ? "ready" : message }, ready];
}

function checkClock({ agentTime }: Health): [Finding, undefined] {
  if (agentTime === undefined) {
    return [{ verdict: "warn", detail: "the agent tells no time" }, undefined];
  }
  const differenceMs = agentTime.getTime() - Date.now();
  if (Math.abs(differenceMs) <= MAX_CLOCK_DIFFERENCE_MS) {
    return [{ verdict: "ok", detail: "the agent's clock agrees with ours" }, undefined];
  }
  const seconds = Math.round(Math.abs(differenceMs) / 1000);
  const detail = `the agent's clock is ${seconds} s ${differenceMs > 0 ? "ahead" : "behind"}; ` +
    "synchronise the sandbox's clock, or this machine's";
  return [{ verdict: "warn", detail }, undefined];
}

/** Before 1.0.0 a minor version may change what clients rely on (semver.org). */
function compatible(version: string): string {
  const [major = "", minor = ""] = version.split(".");
  return major === "0" ? `${major}.${minor}` : major;
}

function checkVersion({ agentVersion }: AteenvClient): [Finding, undefined] {
  if (agentVersion === undefined) {
    return [{ verdict: "warn", detail: `the agent tells none; this is ${VERSION}` }, undefined];
  }
  if (compatible(agentVersion) === compatible(VERSION)) {
    return [{ verdict: "ok", detail: `agent ${agentVersion}, client ${VERSION}` }, undefined];
  }
  const detail = `agent ${agentVersion}, client ${VERSION}; use the same version on both sides`;
  return [{ verdict: "warn", detail }, undefined];
}

async function checkAuth(session: Session, client: AteenvClient): Promise<[Finding, boolean]> {
  await askAnything(session, client);
  const how = session.tokenFile === undefined
    ? "no token is needed"
    : await isOpen(session)
    ? "no token is needed, though one was given"
    : "the token is accepted";
  return [{ verdict: "ok", detail: how }, true];
}

/** Makes a call that is answered only to those who may ask. @throws {AteenvError} for others. */
async function askAnything(session: Session, client: AteenvClient): Promise<void> {
  try {
    await client.processes.get(NO_PROCESS).status({ signal: limit(session) });
  } catch (error) {
    if (!(error instanceof AteenvError)) throw error;
    const isAnswer = ["not-found", "invalid-argument", "unimplemented"].includes(error.kind);
    if (!isAnswer) throw error;
  }
}

/** Whether the agent answers without a token too. */
async function isOpen(session: Session): Promise<boolean> {
  await using client = await session.connect({ withoutToken: true });
  try {
    await askAnything(session, client);
    return true;
  } catch (error) {
    if (error instanceof AteenvError && error.kind === "unauthenticated") return false;
    throw error;
  }
}

async function checkProcess(session: Session, client: AteenvClient): Promise<[Finding, undefined]> {
  const startMs = performance.now();
  try {
    const { exitCode, stderr } = await runTool(client, ["true"], limit(session));
    const elapsedMs = Math.round(performance.now() - startMs);
    return exitCode === 0
      ? [{ verdict: "ok", detail: `ran true in ${elapsedMs} ms` }, undefined]
      : [{ verdict: "fail", detail: `true exited with ${exitCode}: ${stderr}` }, undefined];
  } catch (error) {
    if (!(error instanceof ToolMissing)) throw error;
    return [toProcessFinding(error), undefined];
  }
}

/** What it means that `true` cannot be run. */
function toProcessFinding({ kind, message }: ToolMissing): Finding {
  switch (kind) {
    case "unimplemented":
      return { verdict: "off", detail: "processes are switched off (--enable-process=false)" };
    case "permission-denied":
      return { verdict: "ok", detail: "limited by the agent's --allow-run" };
    default:
      return { verdict: "warn", detail: message };
  }
}

async function checkFiles(session: Session, client: AteenvClient): Promise<[Finding, undefined]> {
  const content = crypto.randomUUID();
  try {
    await client.files.write(PROBE_FILE, content, { signal: limit(session) });
  } catch (error) {
    if (!(error instanceof AteenvError) || error.kind !== "unimplemented") throw error;
    const detail = "files are switched off (--enable-filesystem=false)";
    return [{ verdict: "off", detail }, undefined];
  }
  let isSame: boolean;
  let left: string;
  try {
    isSame = await client.files.readText(PROBE_FILE, { signal: limit(session) }) === content;
  } finally {
    // Also after Ctrl-C.
    left = await removeProbe(client) ? "" : `; no program could remove ${PROBE_FILE}, which stays`;
  }
  return isSame
    ? [{ verdict: "ok", detail: `wrote and read a file${left}` }, undefined]
    : [{ verdict: "fail", detail: `read something else than was written${left}` }, undefined];
}

async function removeProbe(client: AteenvClient): Promise<boolean> {
  const signal = AbortSignal.timeout(STEP_MS);
  for (const remover of REMOVERS) {
    const isGone = await runTool(client, remover, signal)
      .then(({ exitCode }) => exitCode === 0, () => false);
    if (isGone) return true;
  }
  return false;
}

function limit(session: Session): AbortSignal {
  return AbortSignal.any([session.io.interrupt, AbortSignal.timeout(STEP_MS)]);
}
