// What is taken for a parent of a span, and that nothing is made where nothing is exported.
import { assertEquals } from "@std/assert";
import { systemClock } from "../../../src/clock.ts";
import { openTelemetry, parseTraceparent } from "../../../src/rpc/telemetry.ts";

const TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID = "b7ad6b7169203331";
const PARENT = { traceId: TRACE_ID, spanId: SPAN_ID, traceFlags: 1, isRemote: true };

Deno.test("traceparent: what W3C allows is a parent", { permissions: "none" }, () => {
  assertEquals(parseTraceparent(`00-${TRACE_ID}-${SPAN_ID}-01`), PARENT);
  assertEquals(parseTraceparent(`00-${TRACE_ID}-${SPAN_ID}-00`), { ...PARENT, traceFlags: 0 });
  // Of the flags only the first is known; a later version may say more behind them.
  assertEquals(parseTraceparent(`00-${TRACE_ID}-${SPAN_ID}-ff`), PARENT);
  assertEquals(parseTraceparent(`01-${TRACE_ID}-${SPAN_ID}-01-more`), PARENT);
});

Deno.test("traceparent: anything else is none", { permissions: "none" }, () => {
  for (
    const header of [
      undefined,
      "",
      "garbage",
      `00-${TRACE_ID}-${SPAN_ID}`,
      `00-${TRACE_ID}-${SPAN_ID}-1`,
      `00-${TRACE_ID}-${SPAN_ID}-01-more`,
      `01-${TRACE_ID}-${SPAN_ID}-01more`,
      `ff-${TRACE_ID}-${SPAN_ID}-01`,
      `00-${TRACE_ID.toUpperCase()}-${SPAN_ID}-01`,
      `00-${"0".repeat(32)}-${SPAN_ID}-01`,
      `00-${TRACE_ID}-${"0".repeat(16)}-01`,
      `00-${TRACE_ID}-${SPAN_ID}-01\n`,
      ` 00-${TRACE_ID}-${SPAN_ID}-01`,
    ]
  ) assertEquals(parseTraceparent(header), undefined, header);
});

Deno.test("telemetry: nothing where Deno exports nothing", { permissions: "none" }, () => {
  const options = { version: "1", clock: systemClock, methods: [], gauges: [] };
  assertEquals(openTelemetry(options), undefined);
});
