// StartProcess: what runs, where, and with what around it.
import { assert, assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { ProcessStatus } from "../../../gen/ateenv/v1alpha/guest_pb.ts";
import { rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase } from "../contract_case.ts";
import { createGate } from "../gate.ts";

const decoder = new TextDecoder();

export const startProcessCases: readonly ContractCase[] = [
  {
    id: "start.argv",
    line: "argv is run exactly, no shell of ours",
    async run({ api }) {
      const { text } = await api.run([
        "printf",
        "%s|",
        "a b",
        "$HOME",
        "*",
        "",
        "é",
        "'\"\\",
        "-n",
      ]);
      assertEquals(text, "a b|$HOME|*||é|'\"\\|-n|");
    },
  },
  {
    id: "start.big-argv",
    line: "argv is run exactly: 100 KiB in one argument, 5,000 arguments",
    async run({ api }) {
      const long = "x".repeat(100 * 1024);
      assertEquals((await api.run(["printf", "%s", long])).text, long);
      const many = Array.from({ length: 5000 }, (_, index) => `arg-${index}`);
      assertEquals((await api.run(["printf", "%s\n", ...many])).text, many.join("\n") + "\n");
    },
  },
  {
    id: "start.text-without-interpreter-line",
    line: "text without a `#!` line is run by /bin/sh, as execvp does",
    async run({ api, root, dir }) {
      await api.write(`${dir}/plain`, 'echo "plain $1"\nexit 4\n', 0o755);
      const { process, text } = await api.run([`${root}/${dir}/plain`, "text"]);
      assertEquals(text, "plain text\n");
      assertEquals(process.exitCode, 4);
    },
  },
  {
    id: "start.path-of-request",
    line: "the program is looked up in the child's PATH (the request's env.PATH if given)",
    async run({ api, root, dir }) {
      await api.write(`${dir}/bin/only-here`, "#!/bin/sh\necho found\n", 0o755);
      const env = { PATH: `/nonexistent:${root}/${dir}/bin` };
      assertEquals((await api.run(["only-here"], { env })).text, "found\n");
      const { process } = await api.run(["only-here"]);
      assertEquals([process.status, process.exitCode], [ProcessStatus.FAILED, 127]);
      const without = await api.run(["sh", "-c", "echo x"], { env: { PATH: "/nonexistent" } });
      assertEquals(without.process.exitCode, 127);
    },
  },
  {
    id: "start.relative-program",
    line: "a relative program path resolves against the cwd",
    async run({ api, dir }) {
      await api.write(`${dir}/sub/tool`, "#!/bin/sh\necho tool\n", 0o755);
      assertEquals((await api.run(["./tool"], { cwd: `${dir}/sub` })).text, "tool\n");
      assertEquals((await api.run(["sub/tool"], { cwd: dir })).text, "tool\n");
      assertEquals((await api.run(["./tool"], { cwd: dir })).process.exitCode, 127);
    },
  },
  {
    id: "start.cwd",
    line: "a relative cwd resolves against the workspace; default cwd: the workspace",
    async run({ api, root, dir }) {
      assertEquals((await api.run(["pwd", "-P"])).text, `${root}\n`);
      assertEquals((await api.run(["pwd", "-P"], { cwd: dir })).text, `${root}/${dir}\n`);
      assertEquals(
        (await api.run(["pwd", "-P"], { cwd: `${root}/${dir}` })).text,
        `${root}/${dir}\n`,
      );
      await api.sh('ln -s . "$1/self"', dir);
      const { text } = await api.run(["pwd", "-P"], { cwd: `${dir}/self` });
      assertEquals(text, `${root}/${dir}\n`);
    },
  },
  {
    id: "start.cwd-outside",
    line: "a cwd outside the workspace is allowed",
    async run({ api }) {
      assertEquals((await api.run(["pwd", "-P"], { cwd: "/" })).text, "/\n");
      assertEquals((await api.run(["pwd", "-P"], { cwd: ".." })).process.exitCode, 0);
    },
  },
  {
    id: "start.stdin",
    line: "stdin is /dev/null",
    async run({ api }) {
      assertEquals((await api.run(["readlink", "/proc/self/fd/0"])).text, "/dev/null\n");
      assertEquals((await api.run(["cat"])).process.status, ProcessStatus.COMPLETED);
    },
  },
  {
    id: "start.session",
    line: "own session and process group",
    async run({ api }) {
      const { text } = await api.run(["cat", "/proc/self/stat"]);
      const pid = text.split(" ")[0];
      const [, , group, session] = text.slice(text.lastIndexOf(")") + 2).split(" ");
      assertEquals([group, session], [pid, pid]);
    },
  },
  {
    id: "start.descriptors",
    line: "the child holds its three streams and nothing of the agent's",
    async run(target) {
      const { api } = target;
      const gate = await createGate(target);
      const list = "for fd in /proc/$$/fd/*; do readlink $fd; done";
      const text = `readlink /proc/$$/fd/1 /proc/$$/fd/2; read _ <"$1"`;
      const other = await api.start(["sh", "-c", text, "sh", gate.path]);
      using reader = api.outputs(other, { follow: true });
      while (reader.text.split("\n").length < 3) await reader.next();
      const pipesOfOther = reader.text.trim().split("\n");
      const held = (await api.run(["sh", "-c", list])).text.trim().split("\n");
      await gate.open();
      assertEquals(held[0], "/dev/null");
      // Neither another process's pipes nor the agent's sockets and files.
      assertEquals(held.filter((name) => pipesOfOther.includes(name)), []);
      assertEquals(held.filter((name) => !/^pipe:|^\/dev\/null$/.test(name)), []);
    },
  },
  {
    id: "start.env-inherited",
    line:
      "the agent's environment without ATEENV_*, PORT, WORKSPACE, WORKDIR, LOG_DIR, DENO_*, ...",
    async run({ api }) {
      const { text } = await api.run(["env", "-0"]);
      const names = text.split("\0").filter((entry) => entry !== "").map((entry) =>
        entry.slice(0, entry.indexOf("="))
      );
      const own = names.filter((name) =>
        /^(ATEENV_|DENO_|npm_|PORT$|WORKSPACE$|WORKDIR$|LOG_DIR$|OTEL_DENO$|INIT_CWD$)/.test(name)
      );
      // The one that is ours: the marker.
      assertEquals(own, ["ATEENV_PROCESS_ID"]);
      assert(names.includes("PATH"));
    },
  },
  {
    id: "start.env-request",
    line: "overlaid by the request's env, empty and odd values as they are",
    async run({ api }) {
      const env = { HOME: "/elsewhere", EMPTY: "", "odd.name-1": "a=b\nc", Ü: "é", PORT: "99" };
      const { text } = await api.run(["env", "-0"], { env });
      const seen = new Map(
        text.split("\0").filter((entry) => entry !== "").map((entry) => {
          const at = entry.indexOf("=");
          return [entry.slice(0, at), entry.slice(at + 1)];
        }),
      );
      for (const [name, value] of Object.entries(env)) assertEquals(seen.get(name), value);
    },
  },
  {
    id: "start.marker",
    line: "plus the marker: a request that names it is INVALID_ARGUMENT",
    async run({ api }) {
      const id = await api.start(["sh", "-c", "echo $ATEENV_PROCESS_ID"]);
      using reader = api.outputs(id, { follow: true });
      await reader.rest();
      assertEquals(reader.text, `${id}\n`);
      await rejectsWith(
        api.start(["true"], { env: { ATEENV_PROCESS_ID: "x" } }),
        status.INVALID_ARGUMENT,
        "ATEENV_PROCESS_ID",
      );
    },
  },
  {
    id: "start.id",
    line: "process_id = opaque, unguessable, never reused",
    async run({ api }) {
      const ids = await Promise.all(Array.from({ length: 16 }, () => api.start(["true"])));
      assertEquals(new Set(ids).size, 16);
      for (const id of ids) assert(id.length >= 22, id);
      await Promise.all(ids.map((id) => api.finished(id)));
    },
  },
  {
    id: "start.not-found",
    line: "not found: the call succeeds; FAILED, 127, both times set, one line on stderr",
    async run({ api, root }) {
      for (const program of ["no-such-program", "./no-such", `${root}/no/such`]) {
        const { process, stdout, stderr } = await api.run([program, "x"]);
        assertEquals([process.status, process.exitCode], [ProcessStatus.FAILED, 127]);
        assert(process.startedAt !== undefined && process.finishedAt !== undefined);
        assertEquals(stdout.length, 0);
        const line = decoder.decode(stderr);
        assert(/^[^\n]+\n$/.test(line) && line.includes(program), line);
      }
    },
  },
  {
    id: "start.cannot-execute",
    line: "found, cannot be executed: FAILED, 126, one line on stderr saying which and why",
    async run({ api, root, dir }) {
      await api.write(`${dir}/no-x`, "#!/bin/sh\necho no\n", 0o644);
      for (const program of [`${root}/${dir}/no-x`, `${root}/${dir}`, "./no-x"]) {
        const { process, stdout, stderr } = await api.run([program], { cwd: dir });
        assertEquals([process.status, process.exitCode], [ProcessStatus.FAILED, 126], program);
        assert(process.startedAt !== undefined && process.finishedAt !== undefined);
        assertEquals(stdout.length, 0);
        const line = decoder.decode(stderr);
        assert(/^[^\n]+\n$/.test(line) && line.includes(program), line);
      }
    },
  },
];
