// The composition root: one agent out of one config. Used by main and by tests.
// The only place that knows all rooms; holds no logic of theirs.
import { type Clock, systemClock } from "./clock.ts";
import type { AgentConfig } from "./config.ts";
import { AgentError } from "./errors.ts";
import type { Logger } from "./log.ts";
import { createDenoSpawner } from "./process/deno_spawner.ts";
import { defaultMaxProcesses, ProcessTable } from "./process/process_table.ts";
import { requireRunAs } from "./process/run_as.ts";
import { openStateDir, type StateDir } from "./process/state_dir.ts";
import { fileSystemHandlers } from "./rpc/file_system_service.ts";
import type { Gauge } from "./rpc/metrics.ts";
import { processHandlers } from "./rpc/process_service.ts";
import { type AgentServer, createServer, formatAddress } from "./rpc/server.ts";
import type { ServiceEntry } from "./rpc/service_entry.ts";
import { GRPC_VERSION, VERSION } from "./version.ts";
import { fileSystemServiceDefinition, processServiceDefinition } from "./wire/definitions.ts";
import { Workspace } from "./workspace/workspace.ts";

/** Descriptors assumed where start.sh could not tell the limit: that of most containers. */
const ASSUMED_DESCRIPTORS = 1024;
/** Part of the grace that is left to connections once the processes are gone, in milliseconds. */
const CONNECTIONS_GRACE_MS = 1000;

/**
 * Whoever followed a process to its end asks for its exit code next: so long, in milliseconds, calls are still
 * taken then. No event tells that a client has no more to ask.
 */
const LAST_CALLS_MS = 500;

/** A running agent. */
export interface Agent extends AsyncDisposable {
  /** Where it listens: "127.0.0.1:8080", "unix:/run/ateenv.sock". */
  readonly addresses: readonly string[];
  /**
   * Ends in order: not ready, no new work, processes get TERM and then KILL, their followers the last
   * bytes, connections close. A second call ends the processes at once and waits for nothing else: the
   * caller is about to exit.
   *
   * @param graceMs longest time that this may take, in milliseconds
   */
  shutdown(graceMs: number): Promise<void>;
}

/**
 * Starts an agent: takes over the state directory, brings back what an earlier agent left there, tries
 * what it leans on, listens, and says so in one log line.
 *
 * @throws {AgentError} where the state directory is another's, files could not be confined, the token file
 * cannot be used, or the address is in use; errors of `Deno.listen` where it cannot be had otherwise
 */
export async function createAgent(
  config: AgentConfig,
  log: Logger,
  clock: Clock = systemClock,
): Promise<Agent> {
  await using parts = new AsyncDisposableStack();
  if (config.isStateTemporary) parts.defer(() => removeStateDir(config));
  const state = parts.use(
    openStateDir({ path: config.stateDir, isShared: config.isStateShared, log }),
  );
  const services: ServiceEntry[] = [];
  const gauges: Gauge[] = runtimeGauges(state);

  let workspace: Workspace | undefined;
  if (config.enableFilesystem) {
    workspace = parts.use(await openWorkspace(config, log));
    services.push({
      name: "ateenv.v1alpha.FileSystemService",
      definition: fileSystemServiceDefinition,
      implementation: fileSystemHandlers(workspace),
      isRefusedInDrain: true,
    });
  }

  let processes: ProcessTable | undefined;
  const maxProcesses = config.maxProcesses ??
    defaultMaxProcesses(config.descriptors ?? ASSUMED_DESCRIPTORS);
  if (config.enableProcess) {
    const spawner = createDenoSpawner(config.runAs);
    if (config.runAs !== undefined) await requireRunAs(spawner, config.runAs, config.allowRun);
    processes = parts.use(
      await ProcessTable.open({
        ...config,
        state,
        spawner,
        clock,
        log,
        maxProcesses,
      }),
    );
    services.push({
      name: "ateenv.v1alpha.ProcessService",
      definition: processServiceDefinition,
      implementation: processHandlers(processes),
    });
    gauges.push(...processGauges(processes));
  }

  const server = parts.use(
    await createServer({
      listen: [
        config.listen,
        ...(config.unixPath === undefined ? [] : [{ path: config.unixPath }]),
      ],
      services,
      auth: authOf(config),
      ...(config.tls === undefined ? {} : { tls: config.tls }),
      limits: { maxMessageBytes: config.maxMessageBytes },
      version: VERSION,
      clock,
      log,
      gauges,
    }).catch((error) => {
      throw listenError(error, config);
    }),
  );
  const addresses = server.addresses.map(formatAddress);
  log.info("ateenvd started", {
    version: VERSION,
    pid: Deno.pid,
    address: addresses[0],
    ...(addresses.length > 1 ? { unix: addresses[1] } : {}),
    workspace: config.workspace,
    root: config.root,
    auth: config.auth,
    deno: Deno.version.deno,
    grpc: GRPC_VERSION,
    ...(processes === undefined ? {} : { killReach: processes.killReach, maxProcesses }),
  });
  return new RunningAgent(addresses, config, server, processes, clock, parts.move());
}

class RunningAgent implements Agent {
  readonly addresses: readonly string[];
  readonly #config: AgentConfig;
  readonly #server: AgentServer;
  readonly #processes: ProcessTable | undefined;
  readonly #clock: Clock;
  readonly #parts: AsyncDisposableStack;
  #stopping = false;

  constructor(
    addresses: readonly string[],
    config: AgentConfig,
    server: AgentServer,
    processes: ProcessTable | undefined,
    clock: Clock,
    parts: AsyncDisposableStack,
  ) {
    this.addresses = addresses;
    this.#config = config;
    this.#server = server;
    this.#processes = processes;
    this.#clock = clock;
    this.#parts = parts;
  }

  async shutdown(graceMs: number): Promise<void> {
    if (!this.#stopping) {
      this.#stopping = true;
      return await this.#stop(graceMs);
    }
    await this.#processes?.shutdown(0);
    if (this.#config.isStateTemporary) await removeStateDir(this.#config);
  }

  async #stop(graceMs: number): Promise<void> {
    this.#server.beginDrain();
    const connectionsMs = Math.min(CONNECTIONS_GRACE_MS, graceMs / 2);
    const hadFollowers = (this.#processes?.metrics().streams ?? 0) > 0;
    await this.#processes?.shutdown(graceMs - connectionsMs);
    const lastCallsMs = hadFollowers ? Math.min(LAST_CALLS_MS, connectionsMs / 2) : 0;
    if (lastCallsMs > 0) {
      await new Promise<void>((resolve) => this.#clock.setTimer(lastCallsMs, resolve));
    }
    await this.#server.close(connectionsMs - lastCallsMs);
    await this.#parts.disposeAsync();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#stopping) await this.shutdown(0);
  }
}

function listenError(error: unknown, { listen, unixPath }: AgentConfig): unknown {
  if (!(error instanceof Deno.errors.AddrInUse)) return error;
  const where = [formatAddress(listen), ...(unixPath === undefined ? [] : [`unix:${unixPath}`])];
  return new AgentError(
    "failed-precondition",
    `cannot listen on ${where.join(" and ")}: the address is in use; stop what holds it, ` +
      "or give another --listen",
    { cause: error },
  );
}

/** Idempotent: a hurried shutdown may meet the one that it overtakes. */
async function removeStateDir({ stateDir }: AgentConfig): Promise<void> {
  await Deno.remove(stateDir, { recursive: true }).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
}

async function openWorkspace(config: AgentConfig, log: Logger): Promise<Workspace> {
  const { tokenFile, tls } = config;
  const workspace = new Workspace({
    workspace: config.workspace,
    root: config.root,
    readPaths: config.readPaths,
    aliases: config.aliases,
    // What clients upload is for the processes to use.
    ...(config.runAs === undefined ? {} : { newOwner: config.runAs }),
    forbidden: [tokenFile, tls?.keyFile].filter((path) => path !== undefined),
    stateDir: config.stateDir,
    fsync: config.fsync,
    log,
  });
  if (!`${config.workspace}/`.startsWith(`${config.root.replace(/\/$/, "")}/`)) {
    log.warn(
      "the workspace is outside the root: relative paths will be refused; give --workspace",
      {
        workspace: config.workspace,
        root: config.root,
      },
    );
  }
  const { pinning, detail } = await workspace.selfTest();
  if (!pinning) {
    await workspace[Symbol.asyncDispose]();
    throw new AgentError(
      "failed-precondition",
      `files could not be confined here: ${detail}; start the agent through src/start.sh, ` +
        "or give --enable-filesystem=false",
    );
  }
  await workspace.removeStrays();
  return workspace;
}

function authOf(config: AgentConfig) {
  switch (config.auth) {
    case "none":
      return { mode: "none" } as const;
    case "mtls":
      return { mode: "mtls" } as const;
    case "token":
      return { mode: "token", tokenFile: config.tokenFile! } as const;
  }
}

function runtimeGauges(state: StateDir): Gauge[] {
  return [
    {
      name: "process_open_fds",
      help: "Open descriptors of the agent.",
      read: () => [...Deno.readDirSync(`${state.path}/proc/self/fd`)].length,
    },
    {
      name: "process_resident_memory_bytes",
      help: "Resident memory of the agent, in bytes.",
      read: () => Deno.memoryUsage().rss,
    },
  ];
}

function processGauges(processes: ProcessTable): Gauge[] {
  return [
    {
      name: "ateenv_running_processes",
      help: "Processes that run.",
      read: () => processes.metrics().running,
    },
    {
      name: "ateenv_spool_bytes",
      help: "Bytes of output kept on disk.",
      read: () => processes.metrics().spoolBytes,
    },
  ];
}
