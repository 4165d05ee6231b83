// The port: two protocols, metadata, sizes, deadlines, and what malformed input does not do.
import { Buffer } from "node:buffer";
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { processServiceDefinition } from "../../../src/wire/definitions.ts";
import type { ContractCase, Target } from "../contract_case.ts";
import { exchangeText, httpGet } from "../http_get.ts";
import { callFrames, exchange, grpcMessage, PREFACE } from "../raw_http2.ts";
import { concatBytes } from "../../helpers/output_reader.ts";

const { DEADLINE_EXCEEDED, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED } =
  status;
const MIB = 1024 * 1024;
const GET_PROCESS = processServiceDefinition.getProcess.path;

/** That the agent still answers, on the old connection and on a new one. */
async function answers({ api, address }: Target): Promise<void> {
  await rejectsWith(api.get("nobody"), NOT_FOUND);
  using fresh = new AgentApi(address);
  await rejectsWith(fresh.get("nobody"), NOT_FOUND);
}

/** A method of a service as a client that was generated from another proto calls it. */
function method(path: string) {
  const same = (bytes: Uint8Array) => Buffer.from(bytes);
  return {
    path,
    requestStream: false,
    responseStream: false,
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  } as const;
}

export const portCases: readonly ContractCase[] = [
  {
    id: "port.readyz",
    line: "HTTP/1.1 `GET /readyz` (200 `ok`) on the same port; Date",
    async run({ address }) {
      for (let round = 0; round < 20; round++) {
        const { status: code, body, headers } = await httpGet(address, "/readyz");
        assertEquals([code, body.trim()], [200, "ok"]);
        assert(!Number.isNaN(Date.parse(headers.get("date") ?? "")), "no Date");
      }
    },
  },
  {
    id: "port.healthz",
    line: "and `/healthz`",
    run: async ({ address }) => assertEquals((await httpGet(address, "/healthz")).status, 200),
  },
  {
    id: "port.any-host",
    line: "any Host; without one; with fetch",
    async run({ address }) {
      for (const host of ["", "localhost", "evil.example:1", "[::1]:80", address]) {
        assertEquals((await httpGet(address, "/readyz", { Host: host })).status, 200);
      }
      const response = await fetch(`http://${address}/readyz`);
      assertEquals([response.status, (await response.text()).trim()], [200, "ok"]);
    },
  },
  {
    id: "port.unknown-path",
    line: "HTTP/1.1 for anything else is an error of that request, nothing else",
    async run(target) {
      const { address } = target;
      assertEquals((await httpGet(address, "/nothing")).status, 404);
      assert((await httpGet(address, "/../../etc/passwd")).status >= 400);
      await answers(target);
    },
  },
  {
    id: "port.metrics",
    line:
      "`GET /metrics` answers Prometheus text: processes, spool, streams, calls, RSS, descriptors",
    async run({ address, api }) {
      await rejectsWith(api.get("nobody"), NOT_FOUND);
      const { status: code, body } = await httpGet(address, "/metrics");
      assertEquals(code, 200);
      const samples = body.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
      for (const line of samples) {
        assert(/^[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+.e0-9]+$/.test(line), line);
      }
      const names = samples.map((line) => line.split(/[ {]/)[0]).join("\n");
      for (const word of ["running", "spool", "stream", "calls", "resident", "descriptors|fds"]) {
        assert(new RegExp(word).test(names), `no metric of ${word} in\n${names}`);
      }
      assert(/method="[^"]*GetProcess",code="NOT_FOUND"/.test(body), "calls by method and code");
    },
  },
  {
    id: "port.version",
    line: "every response carries ateenv-version in its metadata",
    async run({ api }) {
      const seen: string[] = [];
      const onMetadata = (metadata: { get(name: string): unknown[] }) =>
        seen.push(String(metadata.get("ateenv-version")[0]));
      const id = await api.start(["echo", "x"], { onMetadata });
      await api.get(id, { onMetadata });
      using reader = api.outputs(id, { follow: true, onMetadata });
      await reader.rest();
      await api.kill(id, { onMetadata });
      assertEquals(seen.length, 4);
      for (const version of seen) assert(/^\d+\.\d+\.\d+/.test(version), version);
      const error = await rejectsWith(api.get("nobody", { onMetadata }), NOT_FOUND);
      const last = seen.length === 5 ? seen[4] : String(error.metadata.get("ateenv-version")[0]);
      assertEquals(last, seen[0]);
    },
  },
  {
    id: "port.unknown-metadata",
    line: "unknown metadata (`x-env-id`, `x-env-atespace`) is ignored, large metadata is taken",
    async run({ api }) {
      const metadata = {
        "x-env-id": "e-1",
        "x-env-atespace": "a",
        "authorization": "Bearer unneeded",
        "x-large": "x".repeat(4000),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
      };
      await rejectsWith(api.get("nobody", { metadata }), NOT_FOUND);
      const id = await api.start(["true"], { metadata });
      await api.finished(id);
    },
  },
  {
    id: "port.unknown-fields",
    line: "unknown fields are ignored",
    async run({ address }) {
      // process_id = "nobody", then field 100 (varint) and field 101 (bytes).
      const request = new Uint8Array([
        10,
        6,
        ...new TextEncoder().encode("nobody"),
        0xa0,
        6,
        1,
        0xaa,
        6,
        1,
        7,
      ]);
      const answer = await exchange(
        address,
        concatBytes([PREFACE, callFrames(GET_PROCESS, grpcMessage(request))]),
      );
      assert(answer.length > 0);
      using api = new AgentApi(address);
      await rejectsWith(api.unary(method(GET_PROCESS), request), NOT_FOUND, '"nobody"');
    },
  },
  {
    id: "port.unknown-method",
    line: "unknown methods: UNIMPLEMENTED",
    async run(target) {
      const { api } = target;
      const nothing = new Uint8Array(0);
      for (const path of ["/ateenv.v1alpha.ProcessService/Nope", "/no.Such/Method", "/x"]) {
        await rejectsWith(api.unary(method(path), nothing), UNIMPLEMENTED);
      }
      await answers(target);
    },
  },
  {
    id: "port.malformed-message",
    line: "malformed messages end that call, nothing else",
    async run(target) {
      const { api } = target;
      for (const bytes of [[0xff, 0xff, 0xff], [10, 100, 65], [10, 2, 0xc3, 0x28], [7]]) {
        const call = api.unary(method(GET_PROCESS), new Uint8Array(bytes));
        const code = await call.then(() => 0, (error) => error.code);
        assert(code === status.INTERNAL || code === INVALID_ARGUMENT, `${bytes}: ${code}`);
      }
      await answers(target);
    },
  },
  {
    id: "port.malformed-frames",
    line: "malformed frames or headers end that call or connection, nothing else",
    async run(target) {
      const { address } = target;
      const message = grpcMessage(new Uint8Array([10, 1, 65]));
      const attempts = [
        concatBytes([PREFACE, new Uint8Array(64).fill(0xff)]),
        concatBytes([
          PREFACE,
          callFrames(GET_PROCESS, grpcMessage(new Uint8Array(3), 0, 2 ** 32 - 1)),
        ]),
        concatBytes([PREFACE, callFrames(GET_PROCESS, grpcMessage(new Uint8Array(3), 7))]),
        concatBytes([PREFACE, callFrames(GET_PROCESS, message.subarray(0, 3))]),
        concatBytes([PREFACE, callFrames(GET_PROCESS, message, { "grpc-timeout": "soon" })]),
        concatBytes([PREFACE, callFrames(GET_PROCESS, message, { "grpc-encoding": "nonsense" })]),
        concatBytes([PREFACE, callFrames("", message)]),
        PREFACE.subarray(0, 20),
      ];
      for (const bytes of attempts) {
        await exchange(address, bytes);
        await answers(target);
      }
    },
  },
  {
    id: "port.garbage",
    line: "a connection that sends garbage is closed and costs nothing else",
    async run(target) {
      for (
        const text of [
          "\0\x01\x02garbage\r\n\r\n",
          "GET\r\n\r\n",
          "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        ]
      ) {
        await exchangeText(target.address, text);
        await answers(target);
      }
    },
  },
  {
    id: "port.message-limit",
    line: "messages up to 16 MiB are taken",
    async run(target) {
      const { api, dir } = target;
      const chunk = new Uint8Array(15 * MIB);
      assertEquals(await api.writeMessages([{ path: `${dir}/large`, chunk }]), BigInt(15 * MIB));
      await rejectsWith(
        api.writeMessages([{ path: `${dir}/larger`, chunk: new Uint8Array(17 * MIB) }]),
        RESOURCE_EXHAUSTED,
      );
      await answers(target);
    },
  },
  {
    id: "port.deadline",
    line: "deadlines are honoured",
    async run({ api }) {
      const id = await api.start(["sleep", "1000"]);
      await rejectsWith(
        api.outputs(id, { follow: true, deadlineMs: 300 }).rest(),
        DEADLINE_EXCEEDED,
      );
      await api.kill(id);
    },
  },
  {
    id: "port.cancel",
    line: "a cancelled call ends at once for the client, and harms no other call",
    async run(target) {
      const { api } = target;
      const id = await api.start(["sleep", "1000"]);
      for (let round = 0; round < 50; round++) {
        let cancel = () => {};
        const reader = api.outputs(id, {
          follow: true,
          onCall: (call) => cancel = () => call.cancel(),
        });
        cancel();
        await rejectsWith(reader.rest(), status.CANCELLED);
      }
      await answers(target);
      await api.kill(id);
    },
  },
  {
    id: "port.many-connections",
    line: "clients come and go: 20 connections of 50 calls each, closed under the agent's answers",
    async run(target) {
      for (let round = 0; round < 20; round++) {
        using api = new AgentApi(target.address);
        await Promise.all(
          Array.from({ length: 50 }, () => rejectsWith(api.get("nobody"), NOT_FOUND)),
        );
      }
      await answers(target);
    },
  },
];
