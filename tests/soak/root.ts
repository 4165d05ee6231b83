// What only root can set up: small file systems, and networks that can be cut.
// Must not import the product.
import type { Finding } from "./scenario.ts";

/** Runs a program. @throws {Error} with what it wrote to stderr */
export async function runTool(command: string, ...args: string[]): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(command, { args }).output();
  const decoder = new TextDecoder();
  if (!success) throw new Error(`${command} ${args.join(" ")}: ${decoder.decode(stderr)}`);
  return decoder.decode(stdout);
}

/** What stands in the table where a scenario cannot be run here: seen, and no failure. */
export function skipped(why: string): Finding {
  return { what: "SKIPPED", measured: why, wanted: "-", ok: true };
}

/** A small file system at `path`, an existing directory, until disposal. */
export async function mountTmpfs(path: string, bytes: number): Promise<AsyncDisposable> {
  await runTool("mount", "-t", "tmpfs", "-o", `size=${bytes},mode=700`, "ateenvd-soak", path);
  return {
    async [Symbol.asyncDispose]() {
      await runTool("umount", path);
    },
  };
}

/** Two hosts on one wire that can be cut. */
export interface Wire extends AsyncDisposable {
  /** Put before a program to run it on that host. */
  readonly server: readonly string[];
  readonly client: readonly string[];
  /** Address of the server. */
  readonly serverAddress: string;
  /** From now on every packet is lost. */
  cut(): Promise<void>;
}

/** Makes two network namespaces and a wire between them. */
export async function createWire(): Promise<Wire> {
  const unique = crypto.randomUUID().slice(0, 6);
  const [server, client] = [`soak-s-${unique}`, `soak-c-${unique}`];
  const serverAddress = "192.0.2.1";
  const remove = async () => {
    for (const name of [server, client]) {
      await runTool("ip", "netns", "del", name).catch(() => {});
    }
  };
  try {
    for (const name of [server, client]) {
      await runTool("ip", "netns", "add", name);
      await runTool("ip", "-n", name, "link", "set", "lo", "up");
    }
    const link = ["link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", client];
    await runTool("ip", "-n", server, ...link);
    await runTool("ip", "-n", server, "addr", "add", `${serverAddress}/24`, "dev", "wire");
    await runTool("ip", "-n", client, "addr", "add", "192.0.2.2/24", "dev", "wire");
    for (const name of [server, client]) {
      await runTool("ip", "-n", name, "link", "set", "wire", "up");
    }
  } catch (error) {
    await remove();
    throw error;
  }
  return {
    server: ["ip", "netns", "exec", server],
    client: ["ip", "netns", "exec", client],
    serverAddress,
    cut: () => runTool("ip", "-n", client, "link", "set", "wire", "down").then(() => {}),
    [Symbol.asyncDispose]: remove,
  };
}
