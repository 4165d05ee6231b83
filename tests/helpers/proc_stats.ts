// What the kernel knows of a process. Read by a spawned program: /proc cannot be opened under test permissions.
// Must not import the product.

async function run(command: string, args: string[]): Promise<string> {
  const { stdout } = await new Deno.Command(command, { args, stdin: "null", stderr: "null" })
    .output();
  return new TextDecoder().decode(stdout);
}

/** Resident memory in bytes. */
export async function residentBytes(pid: number): Promise<number> {
  const match = /^VmRSS:\s+(\d+) kB/m.exec(await run("cat", [`/proc/${pid}/status`]));
  if (match === null) throw new Error(`Cannot read the memory of ${pid}: it is gone`);
  return Number(match[1]) * 1024;
}

/** Bytes that it has read from files and pipes; sockets do not count. */
export async function bytesRead(pid: number): Promise<number> {
  const match = /^rchar: (\d+)/m.exec(await run("cat", [`/proc/${pid}/io`]));
  if (match === null) throw new Error(`Cannot read what ${pid} has read: it is gone`);
  return Number(match[1]);
}

/** Number of open descriptors. */
export async function openDescriptors(pid: number): Promise<number> {
  return (await run("ls", [`/proc/${pid}/fd`])).split("\n").filter((line) => line !== "").length;
}

/** Bytes below a directory, as files have them, and the number of files. */
export async function diskUse(path: string): Promise<{ bytes: number; files: number }> {
  const sizes = (await run("find", [path, "-type", "f", "-printf", "%s\\n"])).split("\n")
    .filter((line) => line !== "").map(Number);
  return { bytes: sizes.reduce((sum, size) => sum + size, 0), files: sizes.length };
}
