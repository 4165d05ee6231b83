// What the real agent exports when Deno is told to (OTEL_DENO=true), to a collector in this process.
import { create } from "@bufbuild/protobuf";
import { assert, assertEquals } from "@std/assert";
import { GetProcessRequestSchema } from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { processServiceDefinition } from "../../src/wire/definitions.ts";
import { AgentApi } from "../helpers/agent_api.ts";
import { startAgentProcess } from "../helpers/agent_process.ts";
import { OtlpReceiver } from "../helpers/otlp_receiver.ts";
import { createTempDir } from "../helpers/state_dir.ts";

const TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
const PARENT_ID = "b7ad6b7169203331";
const METADATA = { traceparent: `00-${TRACE_ID}-${PARENT_ID}-01` };

/** Strings that only clients know; each must stay between them and the agent. */
const PRIVATE = {
  token: "token-3f1c9a",
  argv: "argument-77b0e2",
  env: "variable-5d20c8",
  output: "output-91aa4e",
  path: "directory-c41f06/file-e08d55",
  content: "content-2b6e1f",
  metadata: "metadata-d7f3a0",
  query: "query-48ce15",
  method: "/made.Up-a90c77/Method-11d2fb",
} as const;

Deno.test("telemetry: a span per call with its parent and status, the metrics, and nothing private", async () => {
  await using receiver = new OtlpReceiver();
  await using place = await createTempDir();
  const tokenFile = `${place.path}/token`;
  await Deno.writeTextFile(tokenFile, PRIVATE.token);
  await using agent = await startAgentProcess({
    flags: ["--token-file", tokenFile],
    env: receiver.environment(),
  });
  using api = new AgentApi(agent.address, { token: PRIVATE.token });
  const settings = { metadata: { ...METADATA, "x-env-id": PRIVATE.metadata } };

  const running = await api.start(["sh", "-c", "echo $SECRET; cat >&2; exec sleep 999"], {
    ...settings,
    env: { SECRET: PRIVATE.output, OTHER: PRIVATE.env },
  });
  using reader = api.outputs(running, { follow: true });
  await reader.until(PRIVATE.output);
  const started = await receiver.until(({ spans }) =>
    spans.find(({ name }) => name === "ateenv.v1alpha.ProcessService/StartProcess")
  );
  assertEquals({ ...started, durationMs: 0, attributes: { ...started.attributes } }, {
    name: "ateenv.v1alpha.ProcessService/StartProcess",
    kind: 2,
    traceId: TRACE_ID,
    parentSpanId: PARENT_ID,
    status: 0,
    durationMs: 0,
    attributes: {
      "rpc.system": "grpc",
      "rpc.service": "ateenv.v1alpha.ProcessService",
      "rpc.method": "StartProcess",
      "rpc.grpc.status_code": 0,
      "ateenv.received_bytes": started.attributes["ateenv.received_bytes"],
      "ateenv.sent_bytes": started.attributes["ateenv.sent_bytes"],
    },
  });
  assert(Number(started.attributes["ateenv.received_bytes"]) > 50);
  assert(started.durationMs > 0);
  // While the process runs and is followed.
  const gauge = (name: string, value: number) =>
    receiver.until(({ points }) =>
      points.find((point) => point.name === name && point.value === value)
    );
  await gauge("ateenv_running_processes", 1);
  await gauge("ateenv_open_streams", 1);
  await receiver.until(({ points }) =>
    points.find(({ name, value }) =>
      name === "ateenv_spool_bytes" && value! >= PRIVATE.output.length
    )
  );

  await api.write(PRIVATE.path, PRIVATE.content);
  await api.sh("echo $1 >&2", PRIVATE.argv);
  const codeOf = (call: Promise<unknown>) => call.then(() => 0, ({ code }) => code);
  assertEquals(await codeOf(api.readText(`${PRIVATE.path}.missing`)), 5);
  const madeUp = api.unary(
    { ...processServiceDefinition.getProcess, path: PRIVATE.method },
    create(GetProcessRequestSchema, { processId: running }),
    settings,
  );
  assertEquals(await codeOf(madeUp), 12);
  {
    using stranger = new AgentApi(agent.address, { token: `${PRIVATE.token}x` });
    assertEquals(await codeOf(stranger.get(running)), 16);
  }
  const probed = await fetch(`http://${agent.address}/readyz?${PRIVATE.query}`);
  assertEquals(await probed.text(), "ok");
  await api.kill(running);
  await reader.rest();

  const span = (method: string, code: number) =>
    receiver.until(({ spans }) =>
      spans.find(({ attributes }) =>
        attributes["rpc.method"] === method && attributes["rpc.grpc.status_code"] === code
      )
    );
  // What a client asked for in vain is no fault of the server, by OpenTelemetry's rules for gRPC.
  assertEquals((await span("ReadFile", 5)).status, 0);
  assertEquals((await span("GetProcess", 16)).status, 0);
  const made = await span("unknown", 12);
  assertEquals([made.name, made.status, made.parentSpanId], ["unknown", 2, PARENT_ID]);
  const root = await span("WriteFile", 0);
  assertEquals(root.parentSpanId, "");
  assert(root.traceId !== TRACE_ID);
  await receiver.until(({ points }) =>
    points.find(({ name, count, attributes }) =>
      name === "rpc.server.duration" && count === 1 &&
      attributes["rpc.method"] === "KillProcess" && attributes["rpc.grpc.status_code"] === 0
    )
  );

  await agent.stop();
  // Deno's own instrumentation is silent: it would send what clients write into a URL.
  assertEquals(receiver.spans.filter(({ attributes }) => attributes["rpc.system"] !== "grpc"), []);
  for (const [what, text] of Object.entries({ ...PRIVATE, running })) {
    for (const part of text.split("/").filter((part) => part !== "")) {
      assert(!receiver.text.includes(part), `${what} was exported`);
    }
  }
  for (const path of [agent.workspace, agent.stateDir, place.path]) {
    assert(!receiver.text.includes(path), `${path} was exported`);
  }
});

Deno.test("telemetry: the end of the agent sends the spans that are left, in protobuf too", async () => {
  await using receiver = new OtlpReceiver();
  await using agent = await startAgentProcess({
    // Nothing would be sent by itself for an hour.
    env: {
      ...receiver.environment("http/protobuf"),
      OTEL_BSP_SCHEDULE_DELAY: "3600000",
      OTEL_METRIC_EXPORT_INTERVAL: "3600000",
    },
  });
  using api = new AgentApi(agent.address);
  const id = await api.start(["sleep", "999"]);
  using reader = api.outputs(id, { follow: true });
  assertEquals(receiver.bodies.length, 0);
  const rest = reader.rest();
  await agent.stop();
  await rest;
  for (const text of ["StartProcess", "StreamProcessOutputs", "rpc.server.duration"]) {
    assert(receiver.text.includes(text), text);
  }
});

Deno.test("telemetry: children get the variables that the agent was given, without OTEL_DENO", async () => {
  await using receiver = new OtlpReceiver();
  const given = receiver.environment();
  await using agent = await startAgentProcess({ env: given });
  using api = new AgentApi(agent.address);
  const names = (await api.sh("env | sed -n 's/^\\(OTEL_[A-Z_]*\\)=.*/\\1/p' | sort")).split("\n");
  assertEquals(names, Object.keys(given).filter((name) => name !== "OTEL_DENO").sort());
});

Deno.test("telemetry: a collector that never answers does not hold up the end", async () => {
  using collector = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  await using agent = await startAgentProcess({
    env: {
      OTEL_DENO: "true",
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.addr.port}`,
    },
  });
  using api = new AgentApi(agent.address);
  await api.sh("true");
  const startedMs = performance.now();
  await agent.stop();
  // The runtime's own patience is 10 s for traces, and as much again for metrics.
  assert(performance.now() - startedMs < 10_000);
});
