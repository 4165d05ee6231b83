// What every command gets: the agent that is meant, the standard streams, and how to answer.
import { parseAddress } from "../client/address.ts";
import type { AteenvClient } from "../client/client.ts";
import { connect, DEFAULT_ADDRESS } from "../client/connect.ts";
import type { TlsFiles } from "../client/readyz.ts";
import { CliError } from "./failure.ts";
import { readLocalText } from "./local_path.ts";
import { type Stdio, writeText } from "./stdio.ts";

/** Options that every command takes. */
export interface TargetOptions {
  readonly address?: string;
  readonly tokenFile?: string;
  readonly tlsCa?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly json?: boolean;
}

/** A person waits: a wrong address must show in less than two seconds. */
const CONNECT_TIMEOUT_MS = 1_500;

/** One run of the CLI. */
export class Session {
  readonly io: Stdio;
  /** Said where somebody insists on an end at once: what is left behind, and how to end it. */
  lastWords: string | undefined;
  readonly #options: TargetOptions;
  #toldOutageUntilMs = -Infinity;

  constructor(io: Stdio, options: TargetOptions) {
    this.io = io;
    this.#options = options;
  }

  get json(): boolean {
    return this.#options.json === true;
  }

  get address(): string {
    return this.#options.address ?? nonEmpty(this.io.env("ATEENV_ADDRESS")) ?? DEFAULT_ADDRESS;
  }

  /** Token file by option or variable. */
  get tokenFile(): string | undefined {
    return this.#options.tokenFile ?? nonEmpty(this.io.env("ATEENV_TOKEN_FILE"));
  }

  /** The address as a place, with what TLS needs. @throws {CliError} */
  async target() {
    const tls = await this.#tls();
    return { address: parseAddress(this.address, tls !== undefined), tls: tls ?? {} };
  }

  /** @throws {AteenvError} `unavailable` within two seconds if nobody answers. */
  async connect({ withoutToken = false } = {}): Promise<AteenvClient> {
    const tls = await this.#tls();
    const tokenFile = withoutToken ? undefined : this.tokenFile;
    return await connect(this.address, {
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      signal: this.io.interrupt,
      retry: { onOutage: (_, leftMs) => this.#tellOutage(leftMs) },
      ...(tokenFile === undefined
        ? {}
        : { token: (await readLocalText("token file", tokenFile)).trim() }),
      ...(tls === undefined ? {} : { tls }),
    });
  }

  /** The answer of a command, for a program or for a person. */
  async answer(value: unknown, text: string): Promise<void> {
    await writeText(this.io.stdout, this.json ? JSON.stringify(value) + "\n" : text);
  }

  /** A remark that is not the answer. */
  async note(text: string): Promise<void> {
    await writeText(this.io.stderr, `ateenv: ${text}\n`);
  }

  /** Several calls wait for the same agent. */
  #tellOutage(leftMs: number): void {
    const nowMs = performance.now();
    if (nowMs < this.#toldOutageUntilMs) return;
    this.#toldOutageUntilMs = nowMs + leftMs;
    this.note(`connection lost; trying for ${Math.ceil(leftMs / 1_000)} s`).catch(() => {});
  }

  async #tls(): Promise<TlsFiles | undefined> {
    const ca = this.#options.tlsCa ?? nonEmpty(this.io.env("ATEENV_TLS_CA"));
    const { tlsCert: cert, tlsKey: key } = this.#options;
    if ((cert === undefined) !== (key === undefined)) {
      throw new CliError("a client certificate needs both --tls-cert and --tls-key");
    }
    if (ca === undefined && cert === undefined) return undefined;
    const read = async (what: string, path: string | undefined) =>
      path === undefined ? undefined : await readLocalText(what, path);
    return {
      ca: await read("CA file", ca),
      cert: await read("certificate file", cert),
      key: await read("key file", key),
    };
  }
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === "" ? undefined : text;
}
