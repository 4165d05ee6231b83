// Builds the Dockerfile's stages as directories, with chroot in the place of an engine. Takes root.
// Must not know what the stages are for.
import { parseDockerfile, parseDockerignore, type Stage, type Step } from "./dockerfile.ts";

const PROJECT = new URL("../../", import.meta.url).pathname;

/** A stage that has been built. */
export interface Image extends Stage {
  readonly root: string;
}

/** Runs a program; its output goes to stderr. @throws where it fails */
export async function execute(command: readonly string[]): Promise<void> {
  const { success, code } = await new Deno.Command(command[0]!, {
    args: command.slice(1),
    stdin: "null",
    stdout: Deno.env.has("VERBOSE") ? "inherit" : "null",
    stderr: "inherit",
  }).output();
  if (!success) throw new Error(`exit code ${code}: ${command.join(" ").slice(0, 300)}`);
}

/**
 * Builds all stages below `directory`. `debian` is a debootstrapped root of the release that the Dockerfile
 * names; the base image with Node is that root with the Node of this machine in it.
 */
export async function buildImages(
  directory: string,
  debian: string,
  args: Readonly<Record<string, string>>,
): Promise<ReadonlyMap<string, Image>> {
  const images = new Map<string, Image>();
  const text = await Deno.readTextFile(`${PROJECT}Dockerfile`);
  for (const stage of parseDockerfile(text, args)) {
    const root = `${directory}/${stage.name}`;
    await Deno.mkdir(root);
    await layBase(stage.base, root, debian);
    for (const step of stage.steps) {
      if (step.kind === "run") await runStep(root, step);
      else await copyStep(root, step, images);
    }
    images.set(stage.name, { ...stage, root });
  }
  return images;
}

async function layBase(base: string, root: string, debian: string): Promise<void> {
  if (base === "scratch") return;
  if (!/^(node:\d+\.\d+\.\d+-bookworm-slim|debian:bookworm-\d{8}-slim)$/.test(base)) {
    throw new Error(`FROM ${base}: no stand-in for it, or not pinned`);
  }
  await execute(["cp", "-a", `${debian}/.`, root]);
  if (base.startsWith("node:")) {
    await execute(["sh", `${PROJECT}tests/packaging/lay_node.sh`, root]);
  }
}

async function runStep(root: string, step: Step & { kind: "run" }): Promise<void> {
  const variables = Object.entries(step.env).map(([name, value]) => `${name}=${value}`);
  const script = `${PROJECT}tests/packaging/run_step.sh`;
  await execute([
    ...["unshare", "--mount", "--pid", "--fork", "sh", script],
    ...[root, step.cwd, step.command, ...variables],
  ]);
}

async function copyStep(
  root: string,
  { from, sources, target, cwd }: Step & { kind: "copy" },
  images: ReadonlyMap<string, Image>,
): Promise<void> {
  const to = target.startsWith("/") ? `${root}${target}` : `${root}${cwd}/${target}`;
  for (const source of sources) {
    if (from !== undefined) {
      const image = images.get(from);
      if (image === undefined) throw new Error(`COPY --from=${from}: no such stage`);
      await execute(["cp", "-aT", `${image.root}${source}`, to]);
      continue;
    }
    const seen = parseDockerignore(await Deno.readTextFile(`${PROJECT}.dockerignore`));
    if (source === ".") {
      for (const path of seen) await execute(["sh", "-c", COPY_WITH_PARENTS, PROJECT, path, to]);
    } else if (seen.some((path) => source === path || source.startsWith(`${path}/`))) {
      await Deno.mkdir(to, { recursive: true });
      await execute(["cp", `${PROJECT}${source}`, to]);
    } else throw new Error(`COPY ${source}: .dockerignore leaves it out`);
  }
}

const COPY_WITH_PARENTS = 'cd "$0" && cp -a --parents "$1" "$2"';
