// The agent's program: arguments and variables -> config -> agent; signals -> drain -> exit code.
// No logic of its own; must not know gRPC.
import { type AgentConfig, helpText, parseConfig } from "./config.ts";
import { takeEnvironment } from "./environment.ts";
import { createLogger, errorFields, type Logger } from "./log.ts";
import { giveUpPermissions, warnIfUnconfined } from "./permissions.ts";
import { isAtLeast, MIN_DENO_VERSION, VERSION } from "./version.ts";

/** Exit code for a command line or an environment that cannot be served. */
const EXIT_USAGE = 2;
/** A repeated signal within this time is the same Ctrl-C, delivered through the task as well. */
const SAME_SIGNAL_MS = 1000;

function fail(...lines: string[]): never {
  for (const line of lines) console.error(`ateenvd: ${line}`);
  Deno.exit(EXIT_USAGE);
}

/** An error that nobody foresaw costs its own work and a log line, not the agent with all its children. */
function surviveErrors(log: Logger): void {
  globalThis.addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    log.error("unhandled rejection", errorFields(event.reason));
  });
  globalThis.addEventListener("error", (event) => {
    event.preventDefault();
    log.error("uncaught exception", errorFields(event.error));
  });
}

async function serve(config: AgentConfig): Promise<number> {
  const log = createLogger(config.logLevel);
  surviveErrors(log);
  takeEnvironment(config, log);
  warnIfUnconfined(log);
  // Loaded here, so that --help and a mistake in the settings answer at once.
  const { createAgent } = await import("./agent.ts");
  const starting = createAgent(config, log);
  const { promise: stopped, resolve } = Promise.withResolvers<number>();
  let firstSignalMs: number | undefined;
  const stop = (signal: Deno.Signal) => {
    const nowMs = performance.now();
    if (firstSignalMs !== undefined && nowMs - firstSignalMs < SAME_SIGNAL_MS) return;
    const graceMs = firstSignalMs === undefined ? config.shutdownGraceMs : 0;
    firstSignalMs ??= nowMs;
    log.info("stopping", { signal, graceMs });
    starting.then((agent) => agent.shutdown(graceMs)).then(() => resolve(0), (error) => {
      log.error("stopping failed", errorFields(error));
      resolve(1);
    });
  };
  // Before the start is through: a signal that comes with the first readiness is obeyed like any other.
  // A shell that is init starts the agent with SIGQUIT ignored, and children would inherit that: what has
  // a handler here is back to its default in them.
  for (const signal of ["SIGTERM", "SIGINT", "SIGQUIT"] as const) {
    Deno.addSignalListener(signal, () => stop(signal));
  }
  // A write beyond RLIMIT_FSIZE then fails with EFBIG, instead of ending the agent (setrlimit(2)).
  Deno.addSignalListener("SIGXFSZ", () => {});
  try {
    await starting;
  } catch (error) {
    log.error("the agent cannot start", errorFields(error));
    return 1;
  }
  giveUpPermissions();
  const code = await stopped;
  log.info("stopped");
  return code;
}

async function main(): Promise<number> {
  if (!isAtLeast(Deno.version.deno, MIN_DENO_VERSION)) {
    fail(
      `Deno ${Deno.version.deno} is too old: its HTTP/2 server has no back-pressure; ` +
        `use ${MIN_DENO_VERSION} or newer (npx -y deno@2.9.6)`,
    );
  }
  const command = parseConfig(Deno.args, (name) => Deno.env.get(name));
  switch (command.action) {
    case "help":
      console.log(helpText());
      return 0;
    case "version":
      console.log(`ateenvd ${VERSION}${command.commit === undefined ? "" : `+${command.commit}`}`);
      return 0;
    case "error":
      return fail(...command.mistakes);
    case "check-policy": {
      const { checkPolicy } = await import("./policy.ts");
      return await checkPolicy(command.config);
    }
    case "serve":
      return await serve(command.config);
  }
}

/** Without this, what goes wrong before the agent is up would end it with 0: {@linkcode surviveErrors}. */
function cannotRun(error: unknown): number {
  createLogger("error").error("the agent cannot run", errorFields(error));
  return 1;
}

Deno.exit(await main().catch(cannotRun));
