import { assertEquals, assertThrows } from "@std/assert";
import { parseSnapshot, SENTINEL_MARKER } from "../../../src/process/kill/process_snapshot.ts";

const options = { permissions: "none" } as const;
const MARKER = "0123456789abcdef".repeat(2);

function stat(pid: number, comm: string, state: string, threads = 1): string {
  const rest = `7 8 9 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 ${threads} 0 555 3133440 362`;
  return `/proc/${pid}/stat:${pid} (${comm}) ${state} ${rest}\n\0`;
}

function environ(owner: string | number, text: string): string {
  return `/proc/${owner}/environ:${text}\0`;
}

function parse(...records: string[]) {
  return parseSnapshot(`U 12.34 0e7c-b001\n${records.join("")}`);
}

Deno.test("fields of a process", options, () => {
  const snapshot = parse(stat(5, "sleep", "S"), environ(5, `ATEENV_PROCESS_ID=${MARKER}`));
  assertEquals(snapshot.bootTicks, 1234);
  assertEquals(snapshot.processes.get(5), {
    pid: 5,
    name: "sleep",
    state: "S",
    parent: 7,
    processGroup: 8,
    session: 9,
    startTicks: 555,
    alive: true,
    marker: MARKER,
  });
});

Deno.test("a name that imitates the record changes nothing", options, () => {
  for (const name of [") S 1 1 1", "a\n9 (b) S 1", "(((", ")", "", "\nEND x\n"]) {
    const snapshot = parse(stat(5, name, "T"), stat(6, "next", "R"));
    assertEquals([...snapshot.processes.keys()], [5, 6]);
    assertEquals(snapshot.processes.get(5)?.name, name);
    assertEquals(snapshot.processes.get(5)?.state, "T");
  }
});

Deno.test("a zombie is gone, but for one whose threads run on", options, () => {
  const { processes } = parse(stat(5, "a", "Z"), stat(6, "b", "Z", 3), stat(7, "c", "X"));
  assertEquals([...processes.values()].map(({ alive }) => alive), [false, true, false]);
});

Deno.test("records of processes that went away are passed over", options, () => {
  const { processes } = parse("/proc/4/stat:\0", "/proc/5/stat:5 (x) S 1 2\n\0", stat(6, "b", "S"));
  assertEquals([...processes.keys()], [6]);
});

Deno.test("the search for markers has worked only if it found its own", options, () => {
  assertEquals(parse(stat(5, "a", "S")).markersRead, false);
  const sentinel = environ("self", `ATEENV_PROCESS_ID=${SENTINEL_MARKER}`);
  assertEquals(parse(sentinel, stat(5, "a", "S")).markersRead, true);
});

Deno.test("a marker that is no id is none, and the first one counts", options, () => {
  const { processes } = parse(
    stat(5, "a", "S"),
    environ(5, "ATEENV_PROCESS_ID=abc"),
    environ(5, `ATEENV_PROCESS_ID=${MARKER}`),
    environ(5, `ATEENV_PROCESS_ID=${"f".repeat(32)}`),
  );
  assertEquals(processes.get(5)?.marker, MARKER);
});

Deno.test("what is no answer of the helper is refused", options, () => {
  assertThrows(() => parseSnapshot(""), TypeError);
  assertThrows(() => parseSnapshot("sh: not found\n"), TypeError);
});
