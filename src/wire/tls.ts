// TLS on an accepted connection, with certificates from PEM files that may be replaced at any time.
// Must not import gRPC. node:tls over our own connections, so that both protocols are sniffed behind it.
import { Buffer } from "node:buffer";
import { createPrivateKey, X509Certificate } from "node:crypto";
import * as tls from "node:tls";
import type { Clock } from "../clock.ts";
import { AgentError } from "../errors.ts";
import { errorFields, type Logger } from "../log.ts";
import { ConnectionDuplex } from "./connection_duplex.ts";
import type { Connection } from "./connections.ts";
import { FileWatch } from "./file_watch.ts";
import type { Transport } from "./transport.ts";

/** Paths of PEM files. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  /** Clients are asked for a certificate, and those that this CA signed are `certified`. */
  readonly clientCaFile?: string;
}

interface Pems {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly ca?: Buffer;
}

/** Makes TLS connections of plain ones. */
export class TlsAcceptor {
  readonly #files: TlsFiles;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #watch: FileWatch;
  #pems: Pems;

  /** @throws {AgentError} invalid-argument, where the files cannot be used */
  constructor(files: TlsFiles, clock: Clock, log: Logger) {
    this.#files = files;
    this.#clock = clock;
    this.#log = log;
    try {
      const paths = [files.certFile, files.keyFile, files.clientCaFile];
      this.#watch = new FileWatch(paths.filter((path) => path !== undefined), clock);
      this.#pems = readPems(files);
    } catch (error) {
      throw new AgentError("invalid-argument", "cannot use the TLS certificate, key or client CA", {
        cause: error,
      });
    }
  }

  /**
   * Shakes hands on `transport` and notes on `connection` whether the client showed a certificate of our
   * client CA. Rejects where the handshake fails or `transport` is closed meanwhile.
   */
  secure(transport: Transport, connection: Connection): Promise<Transport> {
    this.#reload();
    const duplex = new ConnectionDuplex(transport, { clock: this.#clock });
    // A server for one connection: that of node:tls does not say which stream a socket came from.
    const server = tls.createServer({
      ...this.#pems,
      ALPNProtocols: ["h2", "http/1.1"],
      requestCert: this.#files.clientCaFile !== undefined,
      // Probes come without a certificate; a call that needs one is refused later.
      rejectUnauthorized: false,
    });
    return new Promise((resolve, reject) => {
      server.once("secureConnection", (socket) => {
        connection.certified = this.#files.clientCaFile !== undefined && socket.authorized;
        resolve(new TlsTransport(socket, transport));
      });
      server.once("tlsClientError", reject);
      duplex.once("close", () => reject(new Error("closed during the TLS handshake")));
      server.emit("connection", duplex);
    });
  }

  #reload(): void {
    try {
      this.#watch.check(() => {
        this.#pems = readPems(this.#files);
        this.#log.info("TLS certificates re-read");
      });
    } catch (error) {
      this.#log.warn("cannot re-read the TLS certificates, the old ones stay", errorFields(error));
    }
  }
}

/** @throws where a file cannot be read, holds no PEM, or key and certificate do not fit */
function readPems({ certFile, keyFile, clientCaFile }: TlsFiles): Pems {
  const pems = {
    cert: readPem(certFile),
    key: readPem(keyFile),
    ...(clientCaFile === undefined ? {} : { ca: readPem(clientCaFile) }),
  };
  const certificate = new X509Certificate(pems.cert);
  if (!certificate.checkPrivateKey(createPrivateKey(pems.key))) {
    throw new Error("the TLS key is not that of the certificate");
  }
  if (pems.ca !== undefined) new X509Certificate(pems.ca);
  return pems;
}

function readPem(path: string): Buffer {
  const pem = Buffer.from(Deno.readFileSync(path));
  if (!pem.includes("-----BEGIN ")) throw new Error(`"${path}" holds no PEM`);
  return pem;
}

/** The decrypted side of a TLS connection. */
class TlsTransport implements Transport {
  readonly peer: string;
  readonly remote: Transport["remote"];
  readonly #socket: tls.TLSSocket;
  readonly #chunks: AsyncIterator<Buffer>;

  constructor(socket: tls.TLSSocket, under: Transport) {
    this.#socket = socket;
    this.peer = under.peer;
    this.remote = under.remote;
    socket.on("error", () => {});
    this.#chunks = socket[Symbol.asyncIterator]();
  }

  async read(): Promise<Uint8Array | null> {
    const { done, value } = await this.#chunks.next();
    return done ? null : value;
  }

  write(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#socket.write(bytes, (error) => error ? reject(error) : resolve());
    });
  }

  closeWrite(): Promise<void> {
    return new Promise((resolve) => this.#socket.end(() => resolve()));
  }

  close(): void {
    this.#socket.destroy();
  }
}
