// A certificate authority for one test: server and client certificates, made by openssl.
import { Buffer } from "node:buffer";

/** PEM files and, as grpc-js wants them, their contents. */
export interface Certificates {
  readonly caPath: string;
  readonly certPath: string;
  readonly keyPath: string;
  readonly ca: Buffer;
  readonly clientCert: Buffer;
  readonly clientKey: Buffer;
}

async function openssl(cwd: string, ...args: string[]): Promise<void> {
  const { success, stderr } = await new Deno.Command("openssl", {
    args,
    cwd,
    stdout: "null",
    stderr: "piped",
  }).output();
  if (!success) throw new Error(`openssl ${args[0]}: ${new TextDecoder().decode(stderr)}`);
}

/** Makes a CA, a server certificate for 127.0.0.1 and localhost, and a client certificate in `dir`. */
export async function createCertificates(dir: string): Promise<Certificates> {
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  await openssl(
    dir,
    "req",
    "-x509",
    ...key,
    "-days",
    "2",
    "-subj",
    "/CN=test CA",
    "-keyout",
    "ca.key",
    "-out",
    "ca.pem",
  );
  await Deno.writeTextFile(`${dir}/names`, "subjectAltName=IP:127.0.0.1,DNS:localhost\n");
  for (const name of ["server", "client"]) {
    await openssl(
      dir,
      "req",
      ...key,
      "-subj",
      `/CN=${name}`,
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.csr`,
    );
    await openssl(
      dir,
      ...["x509", "-req", "-in", `${name}.csr`, "-CA", "ca.pem", "-CAkey", "ca.key"],
      ...["-CAcreateserial", "-days", "2", "-extfile", "names", "-out", `${name}.pem`],
    );
  }
  const read = async (name: string) => Buffer.from(await Deno.readFile(`${dir}/${name}`));
  return {
    caPath: `${dir}/ca.pem`,
    certPath: `${dir}/server.pem`,
    keyPath: `${dir}/server.key`,
    ca: await read("ca.pem"),
    clientCert: await read("client.pem"),
    clientKey: await read("client.key"),
  };
}
