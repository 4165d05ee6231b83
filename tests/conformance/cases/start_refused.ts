// StartProcess: what is refused, with which code and words, and what is left behind (nothing).
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { rejectsWith } from "../../helpers/agent_api.ts";
import { startThenReset } from "../raw_http2.ts";
import type { ContractCase } from "../contract_case.ts";

const { INVALID_ARGUMENT, PERMISSION_DENIED, RESOURCE_EXHAUSTED } = status;

export const startRefusedCases: readonly ContractCase[] = [
  {
    id: "start.empty-command",
    line: "INVALID_ARGUMENT `command cannot be empty` (no argv, or an empty argv[0])",
    async run({ api }) {
      await rejectsWith(api.start([]), INVALID_ARGUMENT, "command cannot be empty");
      await rejectsWith(api.start(["", "x"]), INVALID_ARGUMENT, "command cannot be empty");
    },
  },
  {
    id: "start.nul",
    line: "INVALID_ARGUMENT: a NUL byte anywhere",
    async run({ api }) {
      await rejectsWith(api.start(["ec\0ho"]), INVALID_ARGUMENT);
      await rejectsWith(api.start(["echo", "a\0b"]), INVALID_ARGUMENT);
      await rejectsWith(api.start(["echo"], { cwd: "a\0b" }), INVALID_ARGUMENT);
      await rejectsWith(api.start(["echo"], { env: { "A\0B": "c" } }), INVALID_ARGUMENT);
      await rejectsWith(api.start(["echo"], { env: { A: "b\0c" } }), INVALID_ARGUMENT);
    },
  },
  {
    id: "start.variable-name",
    line: "INVALID_ARGUMENT: a variable name that is empty or has `=`",
    async run({ api }) {
      await rejectsWith(api.start(["true"], { env: { "": "x" } }), INVALID_ARGUMENT);
      await rejectsWith(api.start(["true"], { env: { "A=B": "x" } }), INVALID_ARGUMENT, "A=B");
    },
  },
  {
    id: "start.bad-cwd",
    line:
      "INVALID_ARGUMENT: a cwd that does not exist or is no directory (named, never the command)",
    async run({ api, dir }) {
      await api.write(`${dir}/file`, "x");
      const absent = await rejectsWith(
        api.start(["sh-under-test"], { cwd: `${dir}/absent` }),
        INVALID_ARGUMENT,
        `${dir}/absent`,
      );
      assert(!absent.details.includes("sh-under-test"), absent.details);
      await rejectsWith(
        api.start(["true"], { cwd: `${dir}/file` }),
        INVALID_ARGUMENT,
        `${dir}/file`,
      );
      await rejectsWith(
        api.start(["true"], { cwd: "/no/such/dir" }),
        INVALID_ARGUMENT,
        "/no/such/dir",
      );
      await rejectsWith(
        api.start(["true"], { cwd: "/etc/passwd" }),
        INVALID_ARGUMENT,
        "/etc/passwd",
      );
      await rejectsWith(api.start(["true"], { cwd: `${dir}/file/x` }), INVALID_ARGUMENT);
    },
  },
  {
    id: "start.too-large",
    line: "INVALID_ARGUMENT: argv and env too large for the kernel",
    async run({ api }) {
      await rejectsWith(api.start(["true", "x".repeat(3_000_000)]), INVALID_ARGUMENT);
      await rejectsWith(
        api.start(["true"], { env: { BIG: "x".repeat(3_000_000) } }),
        INVALID_ARGUMENT,
      );
      const many = Array.from({ length: 100 }, (_, index) => `${index}`.padEnd(100_000, "x"));
      await rejectsWith(api.start(["true", ...many]), INVALID_ARGUMENT);
      assertEquals((await api.run(["true"])).process.status, ProcessStatus.COMPLETED);
    },
  },
  {
    id: "start.limit",
    line:
      "RESOURCE_EXHAUSTED `maximum concurrent processes limit (N) reached`; failures take no slot",
    settings: { flags: ["--max-processes", "2"] },
    async run({ api }) {
      const first = await api.start(["sleep", "1000"]);
      for (let count = 0; count < 3; count++) {
        await rejectsWith(api.start([]), INVALID_ARGUMENT);
        await rejectsWith(api.start(["true"], { cwd: "/absent" }), INVALID_ARGUMENT);
        assertEquals((await api.run(["no-such-program"])).process.exitCode, 127);
        assertEquals((await api.run(["true"])).process.exitCode, 0);
      }
      const second = await api.start(["sleep", "1000"]);
      await rejectsWith(
        api.start(["true"]),
        RESOURCE_EXHAUSTED,
        "maximum concurrent processes limit (2) reached",
      );
      await api.kill(second);
      assertEquals((await api.run(["true"])).process.exitCode, 0);
      await api.kill(first);
    },
  },
  {
    id: "start.limit-none",
    line: "`--max-processes` 0 = none",
    settings: { flags: ["--max-processes", "0"] },
    async run({ api }) {
      const ids = await Promise.all(Array.from({ length: 20 }, () => api.start(["sleep", "1000"])));
      await Promise.all(ids.map((id) => api.kill(id)));
    },
  },
  {
    id: "start.client-gone",
    line: "a client gone before the answer could be sent: the process is killed and forgotten",
    settings: { flags: ["--max-processes", "1"] },
    async run({ api, address, root, dir }) {
      const pids = `${root}/${dir}/pids`;
      for (let round = 0; round < 5; round++) {
        await startThenReset(address, ["sh", "-c", `echo $$ >>"${pids}"; exec sleep 1000`]);
      }
      // The one slot comes free again; no event tells when, so ask until it has.
      const deadline = Date.now() + 20_000;
      for (;;) {
        try {
          assertEquals((await api.run(["true"])).process.exitCode, 0);
          break;
        } catch (error) {
          if ((error as { code?: number }).code !== RESOURCE_EXHAUSTED) throw error;
          if (Date.now() > deadline) {
            throw new Error("the slot of a forgotten process is never freed");
          }
        }
      }
      const left = await api.sh(
        'for pid in $(cat "$1" 2>/dev/null); do kill -0 $pid 2>/dev/null && echo $pid; done; :',
        pids,
      );
      assertEquals(left, "");
    },
  },
  {
    id: "start.policy",
    line:
      "PERMISSION_DENIED: a program or variable outside the policy; say which; the policy first",
    settings: { flags: ["--allow-run", "sh,cat,env,pwd,sleep,mkfifo"], env: { LD_BIND_NOW: "1" } },
    async run({ api, root, dir }) {
      await rejectsWith(api.start(["ls"]), PERMISSION_DENIED, "ls");
      await api.write(`${dir}/no-x`, "#!/bin/sh\n", 0o644);
      await rejectsWith(api.start([`${root}/${dir}/no-x`]), PERMISSION_DENIED, "no-x");
      await rejectsWith(
        api.start(["sh", "-c", ":"], { env: { LD_PRELOAD: "/x.so" } }),
        PERMISSION_DENIED,
        "LD_PRELOAD",
      );
      // A merely inherited LD_* is no reason to refuse, and the child does not get it.
      const { process, text } = await api.run(["env"]);
      assertEquals(process.exitCode, 0);
      assert(!text.includes("LD_BIND_NOW"), text);
    },
  },
  {
    id: "start.policy-cwd",
    line: "a cwd that the agent may not look at is judged by the spawn",
    settings: { flags: ["--allow-run", "sh,pwd"] },
    async run({ api }) {
      assertEquals((await api.run(["pwd", "-P"], { cwd: "/etc" })).text, "/etc\n");
      await rejectsWith(
        api.start(["pwd"], { cwd: "/etc/absent" }),
        INVALID_ARGUMENT,
        "/etc/absent",
      );
      await rejectsWith(
        api.start(["pwd"], { cwd: "/etc/passwd" }),
        INVALID_ARGUMENT,
        "/etc/passwd",
      );
    },
  },
];
