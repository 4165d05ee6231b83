// The client against an agent in memory whose calls fail on demand: what is made again, what never is.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { AteenvError, connect } from "../../src/mod.ts";
import { startFakeAgent } from "../helpers/fake_agent.ts";

Deno.test("a client starts, follows, waits, kills, reads and writes", async () => {
  await using agent = await startFakeAgent();
  await using client = await connect(agent.address);
  const process = await client.processes.start(["echo", "hi"]);
  let text = "";
  for await (const { data } of process.output()) text += new TextDecoder().decode(data);
  assertEquals(text, "echo hi\n");
  assertEquals((await process.wait()).exitCode, 0);
  assertEquals(await client.files.write("a", "content"), 7);
  assertEquals(await client.files.readText("a"), "content");
  const error = await assertRejects(() => client.files.readText("b"), AteenvError, "not found");
  assertEquals(error.kind, "not-found");
  assert(status.OK === 0);
});
