// Where a cgroup is in the file system, told from one whose place is known.
import { assertEquals } from "@std/assert";
import { cgroupDirectory } from "../../../src/process/cgroup/cgroup_path.ts";

const options = { permissions: "none" } as const;

Deno.test("a mount of the whole hierarchy", options, () => {
  const known = { name: "/agents/probe", directory: "/sys/fs/cgroup/agents/probe" };
  assertEquals(cgroupDirectory("/", known), "/sys/fs/cgroup");
  assertEquals(cgroupDirectory("/system/agent", known), "/sys/fs/cgroup/system/agent");
});

Deno.test("a mount of a part of it, as in a container with the host's namespace", options, () => {
  const known = { name: "/docker/abc/probe", directory: "/sys/fs/cgroup/probe" };
  assertEquals(cgroupDirectory("/docker/abc", known), "/sys/fs/cgroup");
  assertEquals(cgroupDirectory("/docker/abc/sub", known), "/sys/fs/cgroup/sub");
  assertEquals(cgroupDirectory("/docker/other", known), undefined);
});

Deno.test("names that repeat do not mislead", options, () => {
  const known = { name: "/x/x/probe", directory: "/mnt/x/x/probe" };
  assertEquals(cgroupDirectory("/x", known), "/mnt/x");
});

Deno.test("what is outside of the namespace has no directory", options, () => {
  const known = { name: "/probe", directory: "/sys/fs/cgroup/probe" };
  assertEquals(cgroupDirectory("/../other", known), undefined);
  assertEquals(cgroupDirectory("/", { name: "/a", directory: "/b" }), undefined);
});
