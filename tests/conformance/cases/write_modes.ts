// WriteFile: mode and owner, whatever the umask (the shared agent runs under umask 077).
import { assertEquals } from "@std/assert";
import { status } from "@grpc/grpc-js";
import { rejectsWith } from "../../helpers/agent_api.ts";
import type { ContractCase, Target } from "../contract_case.ts";

function modeOf({ api, dir }: Target, name: string): Promise<string> {
  return api.sh('stat -c %a "$1/$2"', dir, name);
}

export const writeModeCases: readonly ContractCase[] = [
  {
    id: "mode.new",
    line: "mode 0: a new file gets 0644",
    async run(target) {
      await target.api.write(`${target.dir}/file`, "F", 0);
      assertEquals(await modeOf(target, "file"), "644");
    },
  },
  {
    id: "mode.existing",
    line: "mode 0: an existing one keeps its mode",
    async run(target) {
      const { api, dir } = target;
      for (const mode of ["600", "755", "4755", "444"]) {
        await api.sh('rm -f "$1/file"; echo old >"$1/file"; chmod "$2" "$1/file"', dir, mode);
        await api.write(`${dir}/file`, "new", 0);
        assertEquals(await modeOf(target, "file"), mode);
        assertEquals(await api.readText(`${dir}/file`), "new");
      }
    },
  },
  {
    id: "mode.given",
    line: "otherwise exactly the given mode, whatever the umask",
    async run(target) {
      const { api, dir } = target;
      for (const mode of [0o600, 0o755, 0o4755, 0o7777, 0o1, 0o666, 0o400]) {
        await api.write(`${dir}/new-${mode}`, "F", mode);
        assertEquals(await modeOf(target, `new-${mode}`), mode.toString(8));
        await api.write(`${dir}/existing`, "F", mode);
        assertEquals(await modeOf(target, "existing"), mode.toString(8));
      }
    },
  },
  {
    id: "mode.too-large",
    line: "over 07777: INVALID_ARGUMENT",
    async run({ api, dir }) {
      for (const mode of [0o10000, 0o100644, 0xffffffff]) {
        await rejectsWith(api.write(`${dir}/file`, "F", mode), status.INVALID_ARGUMENT);
      }
      assertEquals(await api.sh('ls -A "$1"', dir), "");
    },
  },
  {
    id: "mode.owner",
    line: "the owner of an existing file is kept where the agent may",
    async run({ api, dir }) {
      await api.write(`${dir}/file`, "old", 0o640);
      const owned = await api.sh('chown 1234:5678 "$1/file" 2>/dev/null && echo yes; :', dir);
      if (owned !== "yes") return;
      await api.write(`${dir}/file`, "new");
      assertEquals(await api.sh('stat -c %u:%g:%a "$1/file"', dir), "1234:5678:640");
      await api.write(`${dir}/file`, "newer", 0o4750);
      assertEquals(await api.sh('stat -c %u:%g:%a "$1/file"', dir), "1234:5678:4750");
    },
  },
];
