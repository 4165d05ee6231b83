// Gives one fuzz input to an agent and judges what comes of it.
// Must not import the product.
import type { FuzzInput } from "./fuzz_input.ts";
import { endsStream, RawConnection } from "./raw_connection.ts";

/** Milliseconds after which an agent that neither answers nor closes counts as stuck. */
const STUCK_MS = 30_000;

/** What is wrong with how the agent took it, or undefined. */
export async function runFuzzInput(
  address: string,
  input: FuzzInput,
): Promise<string | undefined> {
  using connection = await RawConnection.open(address);
  let stuck = false;
  const timer = setTimeout(() => {
    stuck = true;
    connection[Symbol.dispose]();
  }, STUCK_MS);
  try {
    for (const piece of input.pieces) {
      if (!await connection.send(piece)) break;
    }
    if (input.answered !== undefined) {
      const answered = await connection.waitFrame(endsStream(input.answered));
      if (!answered) return stuck ? "the call that was in order hangs" : "connection lost";
      return undefined;
    }
    if (input.abrupt) return undefined;
    await connection.endWrite();
    await connection.drain();
    return stuck ? "the connection is not closed" : undefined;
  } finally {
    clearTimeout(timer);
  }
}
