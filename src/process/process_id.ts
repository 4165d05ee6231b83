// Identities of processes: opaque, unguessable, never reused.
// Must not keep anything between calls; see openRandom.
import { AgentError, fromOsError } from "../errors.ts";

const ID_BYTES = 16;

/** What an id looks like: 32 lower-case hex digits. */
export const PROCESS_ID_PATTERN = /^[0-9a-f]{32}$/;

/**
 * A new id from the kernel. The device is opened and read at each call: the runtime's own generator is
 * part of a frozen memory image, and two agents restored from one image would mint the same ids.
 * @throws AgentError `resource-exhausted` when there is no descriptor left
 */
export function newProcessId(): string {
  const bytes = new Uint8Array(ID_BYTES);
  try {
    using device = Deno.openSync("/dev/urandom");
    for (let done = 0; done < ID_BYTES;) {
      const count = device.readSync(bytes.subarray(done));
      if (count === null) throw new Error("/dev/urandom has ended");
      done += count;
    }
  } catch (error) {
    throw fromOsError(error, "cannot make a process id");
  }
  return bytes.toHex();
}

/**
 * Checks that a client named a process at all; whether it exists is the table's to say.
 * @throws AgentError `invalid-argument` when empty
 */
export function requireProcessId(processId: string): string {
  if (processId === "") throw new AgentError("invalid-argument", "process_id cannot be empty");
  return processId;
}
