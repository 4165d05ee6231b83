// Kills that no client asked for: when they begin, when they are repeated, and that no timer is left.
import { assertEquals } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { BackgroundWork } from "../../../src/process/background_work.ts";
import type { ProcessKiller } from "../../../src/process/kill/process_killer.ts";
import type { ProcessEntry } from "../../../src/process/process_entry.ts";
import { defaultMaxProcesses } from "../../../src/process/process_table_options.ts";
import { UnaskedKills } from "../../../src/process/unasked_kills.ts";
import { FakeClock } from "../../helpers/fake_clock.ts";
import { createMemoryLogger } from "../../helpers/process_table.ts";

const options = { permissions: "none" } as const;

function createKills(outcomes: (AgentError | undefined)[] = []) {
  const clock = new FakeClock();
  const { log, lines } = createMemoryLogger();
  const background = new BackgroundWork(log);
  const killed: string[] = [];
  const killer = {
    kill({ processId }: ProcessEntry) {
      killed.push(processId);
      const error = outcomes.shift();
      return error === undefined ? Promise.resolve() : Promise.reject(error);
    },
  } as unknown as ProcessKiller;
  const kills = new UnaskedKills({ killer, background, clock, log, processTimeoutMs: 1_000 });
  return { kills, clock, background, killed, lines };
}

const entry = (processId: string) => ({ processId }) as ProcessEntry;

Deno.test(
  "the process timeout is monotonic, and no timer outlives its process",
  options,
  async () => {
    const { kills, clock, background, killed } = createKills();
    const [a, b] = [entry("a"), entry("b")];
    kills.limitTime(a);
    kills.limitTime(b);
    clock.jumpWall(86_400_000);
    clock.advance(999);
    kills.noteFinal(a);
    assertEquals(killed, []);
    clock.advance(1);
    await background.settle();
    assertEquals(killed, ["b"]);
    kills.noteFinal(b);
    assertEquals(clock.pending, 0);
  },
);

Deno.test("an overdue kill is repeated, until the table ends", options, async () => {
  const overdue = new AgentError("deadline-exceeded", "alive: 7");
  const { kills, killed, lines } = createKills([overdue, overdue, undefined]);
  await kills.kill(entry("a"));
  assertEquals(killed, ["a", "a", "a"]);
  assertEquals(lines.map(({ level }) => level), ["warn", "warn"]);
});

Deno.test("once disposed: no timer is set or left, and nothing is repeated", options, async () => {
  const overdue = new AgentError("deadline-exceeded", "alive: 7");
  const { kills, clock, killed } = createKills([overdue, overdue]);
  kills.limitTime(entry("a"));
  kills[Symbol.dispose]();
  kills.limitTime(entry("b"));
  assertEquals(clock.pending, 0);
  await kills.kill(entry("c")).catch(() => {});
  assertEquals(killed, ["c"]);
});

Deno.test("most processes by default: five descriptors each, 200 for the agent", options, () => {
  assertEquals(
    [256, 1024, 1_480, 1_048_576, 100].map(defaultMaxProcesses),
    [11, 164, 256, 256, 1],
  );
});
