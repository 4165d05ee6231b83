// What a trial of --run-as makes of what the kernel says of a child.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import { requireRunAs } from "../../../src/process/run_as.ts";
import type { SpawnedChild, Spawner } from "../../../src/process/spawner.ts";

function spawnerOf(text: string): Spawner {
  const pipe = (content: string) =>
    new ReadableStream({
      type: "bytes",
      start(controller) {
        if (content !== "") controller.enqueue(new TextEncoder().encode(content));
        controller.close();
      },
    }) as SpawnedChild["stdout"];
  return {
    spawn({ command }) {
      if (command.length === 2) return Promise.reject(new AgentError("invalid-argument", "E2BIG"));
      return Promise.resolve({
        pid: 1,
        stdout: pipe(text),
        stderr: pipe(""),
        exit: Promise.resolve({ code: 0, signal: null }),
        signal() {},
      });
    },
  };
}

const trial = (text: string) => requireRunAs(spawnerOf(text), { uid: 7, gid: 8 }, undefined);

Deno.test("taken: that user, that group, no other groups", { permissions: "none" }, async () => {
  await trial("Uid: 7\t7\t7\t7\nGid: 8\t8\t8\t8\nGroups: \n");
});

Deno.test("refused: groups that stay, another user, another group", {
  permissions: "none",
}, async () => {
  for (
    const [text, why] of [
      ["Uid: 7\t7\t7\t7\nGid: 8\t8\t8\t8\nGroups: 4 27\n", "children would keep the groups 4, 27"],
      ["Uid: 0\t7\t0\t0\nGid: 8\t8\t8\t8\nGroups:\n", "children are 0,7,0,0:8,8,8,8"],
      ["Uid: 7\t7\t7\t7\nGid: 0\t0\t0\t0\nGroups:\n", "children are 7,7,7,7:0,0,0,0"],
    ] as const
  ) {
    const error = await assertRejects(() => trial(text), AgentError);
    assertEquals(error.kind, "failed-precondition");
    assert(error.message.endsWith(why), error.message);
  }
});
