// How a pump reads: what is there at once, lines in a burst together.
import { assert, assertEquals } from "@std/assert";
import { OutputPump } from "../../../src/process/output_pump.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

/** A pipe that the test writes to, a sink that keeps what comes. */
function createPump() {
  let controller: ReadableByteStreamController | undefined;
  const pipe = new ReadableStream({ type: "bytes", start: (given) => void (controller = given) });
  const pieces: Uint8Array[] = [];
  const clock = new FakeClock();
  let isEnded = false;
  const pump = new OutputPump(pipe as ReadableStream<Uint8Array<ArrayBuffer>>, {
    append: (chunk) => void pieces.push(chunk),
    end: () => isEnded = true,
  }, clock);
  return {
    pump,
    pieces,
    clock,
    write: (bytes: number) => controller!.enqueue(new Uint8Array(bytes)),
    close: () => controller!.close(),
    isEnded: () => isEnded,
  };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

Deno.test("the first bytes are read at once, those of a burst together", {
  permissions: "none",
}, async () => {
  const { pump, pieces, clock, write, close } = createPump();
  const lengths = () => pieces.map(({ length }) => length);
  write(1);
  await turn();
  assertEquals(lengths(), [1]);
  write(10);
  await turn();
  // The second of a burst, and the last that is read at once.
  assertEquals(lengths(), [1, 10]);
  for (let i = 0; i < 100; i++) {
    write(10);
    await turn();
  }
  assertEquals(lengths(), [1, 10]);
  clock.advance(1);
  await turn();
  assertEquals(lengths(), [1, 10, 1000]);
  clock.advance(10);
  await turn();
  write(7);
  await turn();
  assertEquals(lengths(), [1, 10, 1000, 7]);
  close();
  clock.advance(1);
  await pump.ended;
  assertEquals(clock.pending, 0);
});

Deno.test("a pump can be stopped while it waits for more of a burst", {
  permissions: "none",
}, async () => {
  const { pump, clock, write, isEnded } = createPump();
  write(1);
  await turn();
  write(1);
  await turn();
  const stopped = pump.stop();
  clock.advance(1);
  await stopped;
  assert(isEnded());
  assertEquals(pump.error, undefined);
});
