import { assertEquals } from "@std/assert";
import { FrameInspector, PREFACE_BYTES } from "../../../src/wire/frame_inspector.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";

/** A frame's nine bytes and a payload of zeros. */
function frame(type: number, flags: number, length: number): Uint8Array {
  const bytes = new Uint8Array(9 + length);
  bytes.set([length >> 16, length >> 8 & 255, length & 255, type, flags, 0, 0, 0, 1]);
  return bytes;
}

function inspectorAfterPreface(clock = new FakeClock()): FrameInspector {
  const inspector = new FrameInspector(clock);
  assertEquals(inspector.inspect(new Uint8Array(PREFACE_BYTES)), undefined);
  return inspector;
}

/** Frames that pass before the first fault, and the fault. */
function flood(inspector: FrameInspector, bytes: Uint8Array, most = 50_000): [number, string?] {
  for (let i = 0; i < most; i++) {
    const fault = inspector.inspect(bytes);
    if (fault !== undefined) return [i, fault];
  }
  return [most];
}

const FLOODS = [
  ["RST_STREAM", frame(3, 0, 4), 2_000, "too many RST_STREAM frames"],
  ["PING", frame(6, 0, 8), 500, "too many PING frames"],
  ["SETTINGS", frame(4, 0, 0), 50, "too many SETTINGS frames"],
  ["empty DATA", frame(0, 0, 0), 500, "too many empty DATA frames"],
  ["DATA of padding only", frame(0, 0x8, 200), 500, "too many empty DATA frames"],
  ["WINDOW_UPDATE", frame(8, 0, 4), 20_000, "too many WINDOW_UPDATE frames"],
  ["PRIORITY", frame(2, 0, 5), 1_000, "too many other frames"],
  ["frames of an unknown type", frame(77, 0, 0), 1_000, "too many other frames"],
  ["acknowledgements that nobody asked for", frame(6, 1, 8), 1_000, "too many other frames"],
] as const;

for (const [name, bytes, most, message] of FLOODS) {
  Deno.test(`a flood of ${name} ends after ${most}`, { permissions: "none" }, () => {
    assertEquals(flood(inspectorAfterPreface(), bytes), [most, message]);
  });
}

Deno.test("what a slow client sends over an hour is no flood", { permissions: "none" }, () => {
  const clock = new FakeClock();
  const inspector = inspectorAfterPreface(clock);
  for (let second = 0; second < 3_600; second++) {
    for (let i = 0; i < 40; i++) assertEquals(inspector.inspect(frame(6, 0, 8)), undefined);
    for (let i = 0; i < 400; i++) assertEquals(inspector.inspect(frame(3, 0, 4)), undefined);
    clock.advance(1_000);
  }
});

Deno.test(
  "pings that answer our data are no flood, whatever their rate",
  { permissions: "none" },
  () => {
    const inspector = inspectorAfterPreface();
    for (let i = 0; i < 100_000; i++) {
      inspector.sent(1_000);
      assertEquals(inspector.inspect(frame(6, 0, 8)), undefined);
    }
  },
);

Deno.test("a client that cancels a lot is told to reconnect, once", { permissions: "none" }, () => {
  const clock = new FakeClock();
  let told = 0;
  const inspector = new FrameInspector(clock, () => told++);
  inspector.inspect(new Uint8Array(PREFACE_BYTES));
  for (let second = 0; second < 100; second++) {
    for (let i = 0; i < 30; i++) inspector.inspect(frame(3, 0, 4));
    clock.advance(1_000);
  }
  assertEquals(told, 0);
  for (let i = 0; i < 1_000; i++) inspector.inspect(frame(3, 0, 4));
  assertEquals(told, 1);
});

Deno.test("DATA, HEADERS and the end of a stream cost nothing", { permissions: "none" }, () => {
  const inspector = inspectorAfterPreface();
  assertEquals(flood(inspector, frame(1, 0x4, 20)), [50_000]);
  assertEquals(flood(inspector, frame(0, 0, 10)), [50_000]);
  assertEquals(flood(inspector, frame(0, 0x1, 0)), [50_000]);
});

Deno.test(
  "a header block ends within eight continuations and 64 KiB",
  { permissions: "none" },
  () => {
    const endless = inspectorAfterPreface();
    assertEquals(endless.inspect(frame(1, 0, 10)), undefined);
    assertEquals(flood(endless, frame(9, 0, 1)), [8, "header block too long"]);
    const large = inspectorAfterPreface();
    assertEquals(large.inspect(frame(1, 0, 16_384)), undefined);
    assertEquals(flood(large, frame(9, 0, 16_384)), [3, "header block too long"]);
    const honest = inspectorAfterPreface();
    assertEquals(honest.inspect(frame(1, 0, 16_384)), undefined);
    assertEquals(honest.inspect(frame(9, 0x4, 100)), undefined);
    assertEquals(honest.inspect(frame(6, 0, 8)), undefined);
  },
);

Deno.test("frames out of order or too large end the connection", { permissions: "none" }, () => {
  assertEquals(inspectorAfterPreface().inspect(frame(9, 0x4, 1)), "CONTINUATION without HEADERS");
  const interrupted = inspectorAfterPreface();
  interrupted.inspect(frame(1, 0, 10));
  assertEquals(interrupted.inspect(frame(6, 0, 8)), "header block interrupted");
  assertEquals(inspectorAfterPreface().inspect(frame(0, 0, 16_385)), "frame too large");
});

Deno.test("where the bytes are cut makes no difference", { permissions: "none" }, () => {
  const inspector = new FrameInspector(new FakeClock());
  const conversation = [
    new Uint8Array(PREFACE_BYTES),
    ...Array.from({ length: 51 }, () => frame(4, 0, 6)),
  ];
  const faults = conversation.flatMap((bytes) => [...bytes]).map((byte) =>
    inspector.inspect(Uint8Array.of(byte))
  ).filter((fault) => fault !== undefined);
  // One frame too many: the fault comes with the last byte of its head.
  assertEquals(faults[0], "too many SETTINGS frames");
});

Deno.test("a call that the client gives up is told by its stream", { permissions: "none" }, () => {
  const told: number[] = [];
  const inspector = new FrameInspector(
    new FakeClock(),
    () => {},
    (stream) => told.push(stream),
  );
  inspector.inspect(new Uint8Array(PREFACE_BYTES));
  const reset = frame(3, 0, 4);
  // With the reserved bit, which has to be ignored.
  reset.set([0x80, 1, 2, 3], 5);
  inspector.inspect(frame(0, 0, 5));
  for (const byte of reset) inspector.inspect(Uint8Array.of(byte));
  assertEquals(told, [0x010203]);
});
