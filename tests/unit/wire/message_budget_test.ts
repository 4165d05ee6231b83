// Who has to go when the messages that nobody has taken cost too much.
import { assertEquals } from "@std/assert";
import { MessageBudget } from "../../../src/wire/message_budget.ts";
import { MessageFraming } from "../../../src/wire/message_framing.ts";

const MIB = 1024 * 1024;

Deno.test("a large newcomer goes itself, a modest one drives out the largest", {
  permissions: "none",
}, () => {
  const budget = new MessageBudget<string>(10 * MIB);
  assertEquals(budget.hold("first", 4 * MIB), undefined);
  assertEquals(budget.hold("second", 5 * MIB), undefined);
  assertEquals(budget.hold("large", 2 * MIB), "large");
  assertEquals(budget.total, 9 * MIB);
  assertEquals(budget.hold("modest", MIB), undefined);
  assertEquals(budget.hold("another", MIB), "second");
  assertEquals(budget.total, 6 * MIB);
});

Deno.test("what is taken or gone makes room", { permissions: "none" }, () => {
  const budget = new MessageBudget<string>(10 * MIB);
  budget.hold("first", 10 * MIB);
  assertEquals(budget.hold("first", 0), undefined);
  assertEquals(budget.hold("second", 10 * MIB), undefined);
  budget.release("second");
  budget.release("second");
  assertEquals(budget.total, 0);
});

function message(length: number, flag = 0): Uint8Array {
  const bytes = new Uint8Array(5 + length);
  new DataView(bytes.buffer).setUint32(1, length);
  bytes[0] = flag;
  return bytes;
}

Deno.test("held: unfinished messages by what came, waiting ones until taken", {
  permissions: "none",
}, () => {
  const framing = new MessageFraming(16 * MIB);
  framing.push(message(5 * MIB).subarray(0, 3 * MIB));
  assertEquals(Math.round(framing.heldBytes / MIB), 3);
  framing.push(new Uint8Array(2 * MIB + 5));
  assertEquals(Math.round(framing.heldBytes / MIB), 5);
  framing.messageTaken();
  assertEquals(framing.heldBytes, 0);
});

Deno.test(
  "held: a compressed message counts as what it may become",
  { permissions: "none" },
  () => {
    const framing = new MessageFraming(16 * MIB);
    framing.push(message(15 * 1024, 1));
    assertEquals(Math.round(framing.heldBytes / MIB), 15);
    framing.push(message(1000 * 1024, 1));
    assertEquals(Math.round(framing.heldBytes / MIB), 31);
  },
);

Deno.test("held: empty messages are not free", { permissions: "none" }, () => {
  const framing = new MessageFraming(16 * MIB);
  for (let count = 0; count < 10_000; count++) framing.push(message(0));
  assertEquals(framing.heldBytes >= 10_000 * 100, true);
  for (let count = 0; count < 10_000; count++) framing.messageTaken();
  assertEquals(framing.heldBytes, 0);
});
