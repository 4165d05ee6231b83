// How a pump reads: what is there at once, lines in a burst together.
import { assert, assertEquals } from "@std/assert";
import { OutputPump } from "../../../src/process/output_pump.ts";

/** A pipe that the test writes to, a sink that keeps what comes. */
function createPump() {
  let controller: ReadableByteStreamController | undefined;
  const pipe = new ReadableStream({ type: "bytes", start: (given) => void (controller = given) });
  const pieces: Uint8Array[] = [];
  let isEnded = false;
  const pump = new OutputPump(pipe as ReadableStream<Uint8Array<ArrayBuffer>>, {
    append: (chunk) => void pieces.push(chunk),
    end: () => isEnded = true,
  });
  return {
    pump,
    pieces,
    write: (bytes: number) => controller!.enqueue(new Uint8Array(bytes)),
    close: () => controller!.close(),
    isEnded: () => isEnded,
  };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

Deno.test("the first bytes are read at once, those of a burst together", {
  permissions: "none",
}, async () => {
  const { pump, pieces, write, close } = createPump();
  write(1);
  await turn();
  assertEquals(pieces.length, 1);
  for (let i = 0; i < 1000; i++) {
    write(10);
    await turn();
  }
  close();
  await pump.ended;
  assertEquals(pieces.reduce((sum, { length }) => sum + length, 0), 10_001);
  // One each without the pause.
  assert(pieces.length < 500, `${pieces.length}`);
});

Deno.test("a pump can be stopped while it waits for more of a burst", {
  permissions: "none",
}, async () => {
  const { pump, write, isEnded } = createPump();
  write(1);
  await turn();
  write(1);
  await turn();
  await pump.stop();
  assert(isEnded());
  assertEquals(pump.error, undefined);
});
