// What a trial of --run-as makes of what the kernel says of a child.
import { assert, assertEquals, assertRejects } from "@std/assert";
import { AgentError } from "../../../src/errors.ts";
import type { ExitReport } from "../../../src/process/process_info.ts";
import { requireRunAs } from "../../../src/process/run_as.ts";
import type { SpawnedChild, Spawner } from "../../../src/process/spawner.ts";

/** `isKillable`: whether a signal to a child does what it says; without one, children end with 0. */
function spawnerOf(text: string, isKillable = true): Spawner {
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
      let exit: ExitReport = { code: 0, signal: null };
      return Promise.resolve({
        pid: 1,
        stdout: pipe(text),
        stderr: pipe(""),
        get exit() {
          return Promise.resolve(exit);
        },
        signal(name) {
          if (isKillable) exit = { code: 137, signal: name };
        },
      });
    },
  };
}

const trial = (text: string, isKillable?: boolean) =>
  requireRunAs(spawnerOf(text, isKillable), { uid: 7, gid: 8 }, undefined);

Deno.test("taken: that user, that group, no other groups", { permissions: "none" }, async () => {
  await trial("Uid: 7\t7\t7\t7\nGid: 8\t8\t8\t8\nGroups: \n");
});

Deno.test("refused: children that could not be killed", { permissions: "none" }, async () => {
  const children = "Uid: 7\t7\t7\t7\nGid: 8\t8\t8\t8\nGroups: \n";
  await assertRejects(() => trial(children, false), AgentError, "CAP_KILL");
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
