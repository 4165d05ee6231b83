// The log: which levels are written, and what a line looks like whatever is put into it.
import { assert, assertEquals } from "@std/assert";
import { createLogger, errorFields, LOG_LEVELS, type LogLevel } from "../../src/log.ts";

function lines(level: LogLevel, write: (log: ReturnType<typeof createLogger>) => void): string[] {
  const written: string[] = [];
  write(createLogger(level, (line) => written.push(line), () => new Date(0)));
  return written;
}

Deno.test(
  "log: a level lets itself and what is more severe through",
  { permissions: "none" },
  () => {
    for (const [index, level] of LOG_LEVELS.entries()) {
      const written = lines(level, (log) => {
        for (const at of LOG_LEVELS) {
          log[at](`a ${at}`);
          assertEquals(log.enabled(at), LOG_LEVELS.indexOf(at) <= index);
        }
      });
      assertEquals(written.map((line) => JSON.parse(line).level), LOG_LEVELS.slice(0, index + 1));
    }
  },
);

Deno.test(
  "log: one JSON object a line, time first, values clipped",
  { permissions: "none" },
  () => {
    const [line = "", ...more] = lines("info", (log) =>
      log.info("two\nlines", {
        quote: '"\u2028',
        long: "x".repeat(100_000),
        names: ["a", "b"],
        left: undefined,
        zero: 0,
      }));
    assertEquals(more, []);
    assertEquals(line.indexOf("\n"), line.length - 1);
    assert(
      line.startsWith('{"time":"1970-01-01T00:00:00.000Z","level":"info","msg":"two\\nlines"'),
    );
    assert(line.length < 1000, `${line.length}`);
    const { quote, long, names, zero } = JSON.parse(line);
    assertEquals([quote, long.length, names, zero], ['"\u2028', 513, ["a", "b"], 0]);
  },
);

Deno.test("log: an error shows its name, message and cause, never its stack", {
  permissions: "none",
}, () => {
  const error = new TypeError("broken", { cause: new RangeError("worn out") });
  assertEquals(errorFields(error), { error: "TypeError: broken", cause: "RangeError: worn out" });
  assertEquals(errorFields("text"), { error: "text" });
});
