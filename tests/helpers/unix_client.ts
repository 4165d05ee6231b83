// Calls over a unix socket, in a process of its own: Deno permits a socket only by its path, which a test run
// cannot know beforehand. `unix_client.ts PATH WORD...` runs the words and prints their output.
import { AgentApi } from "./agent_api.ts";

/** stdout of a command run by the agent behind the socket at `path`. */
export async function runOverUnixSocket(path: string, ...command: string[]): Promise<string> {
  const { stdout, stderr, success } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--no-prompt", "--allow-env", `--allow-net=unix:${path}`],
      ...[`--allow-read=${path}`, `--allow-write=${path}`],
      ...[new URL(import.meta.url).pathname, path, ...command],
    ],
    cwd: new URL("../../", import.meta.url).pathname,
  }).output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}

if (import.meta.main) {
  const [path = "", ...command] = Deno.args;
  using api = new AgentApi(`unix:${path}`);
  await Deno.stdout.write((await api.run(command)).stdout);
}
