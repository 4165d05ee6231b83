// A client on Deno survives an agent that ends while its connection has seen hundreds of calls.
import { assertEquals } from "@std/assert";
import { startAgent } from "../helpers/in_process_agent.ts";

const PROGRAM = new URL("../fixtures/programs/goaway_client.ts", import.meta.url).pathname;

Deno.test("client: GOAWAY after 400 calls does not abort the client's process", async () => {
  for (let round = 0; round < 3; round++) {
    await using agent = await startAgent();
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--no-prompt", "--allow-net", "--allow-env", "--allow-read", PROGRAM],
        agent.address,
      ],
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const stderr = new Response(child.stderr).text();
    const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
    let text = (await reader.read()).value ?? "";
    await agent.agent.shutdown(5000);
    for (let read = await reader.read(); !read.done; read = await reader.read()) text += read.value;
    assertEquals([text, (await child.status).code], ["ready\nalive\n", 0], await stderr);
  }
});
