import { assertEquals } from "@std/assert";
import { codeName, Metrics } from "../../../src/rpc/metrics.ts";

Deno.test(
  "calls are counted by method and code, gauges asked for",
  { permissions: "none" },
  async () => {
    const metrics = new Metrics(["/s/M"], [
      { name: "ateenv_a", help: "A.", read: () => 3 },
      { name: "ateenv_absent", help: "B.", read: () => undefined },
      { name: "ateenv_broken", help: "C.", read: () => Promise.reject(new Error("no")) },
    ]);
    const call = { method: "/s/M", code: 0, bytesIn: 5, bytesOut: 7 };
    metrics.callFinished(call);
    metrics.callFinished(call);
    metrics.callFinished({ ...call, code: 5 });
    // What clients make up shares one label: it must not fill the memory, nor break the text.
    for (let i = 0; i < 100; i++) metrics.callFinished({ ...call, method: `/"\n${i}`, code: 12 });
    const text = await metrics.format();
    assertEquals(text.split("\n").filter((line) => !line.startsWith("#")), [
      'ateenv_calls_total{method="/s/M",code="OK"} 2',
      'ateenv_calls_total{method="/s/M",code="NOT_FOUND"} 1',
      'ateenv_calls_total{method="unknown",code="UNIMPLEMENTED"} 100',
      "ateenv_received_bytes_total 515",
      "ateenv_sent_bytes_total 721",
      "ateenv_a 3",
      "",
    ]);
    assertEquals(text.includes("# TYPE ateenv_a gauge"), true);
  },
);

Deno.test("status codes have their names", { permissions: "none" }, () => {
  assertEquals([0, 11, 16, 99].map(codeName), [
    "OK",
    "OUT_OF_RANGE",
    "UNAUTHENTICATED",
    "UNKNOWN",
  ]);
});
