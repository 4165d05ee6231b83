// Reads a Dockerfile, as far as ours goes: what is not known is an error, so that nothing is passed over.
// Pure: must not read the disk.

/** What is done to a file system, in order. */
export type Step =
  | { readonly kind: "run"; readonly command: string; readonly env: Env; readonly cwd: string }
  | {
    readonly kind: "copy";
    /** Stage to copy from; undefined: the build context. */
    readonly from: string | undefined;
    readonly sources: readonly string[];
    readonly target: string;
    readonly cwd: string;
  };

type Env = Readonly<Record<string, string>>;

/** One stage with what it leaves to its start. */
export interface Stage {
  readonly name: string;
  readonly base: string;
  readonly steps: readonly Step[];
  readonly env: Env;
  readonly cwd: string;
  readonly user: string;
  readonly entrypoint: readonly string[];
  readonly healthcheck: readonly string[];
  readonly volumes: readonly string[];
}

/** Splits into instructions: comments out, continued lines joined. */
function* instructions(text: string): Generator<[word: string, rest: string]> {
  const lines = text.split("\n").filter((line) => !/^\s*(#|$)/.test(line));
  for (let index = 0; index < lines.length; index++) {
    let line = lines[index]!.trim();
    while (line.endsWith("\\")) line = `${line.slice(0, -1)} ${lines[++index]!.trim()}`;
    const [, word, rest] = /^(\S+)\s+([^]*)$/.exec(line) ?? [];
    if (word === undefined) throw new Error(`Dockerfile: cannot read ${JSON.stringify(line)}`);
    yield [word, rest!];
  }
}

/** Stages in order. `args` are the values of `--build-arg`. */
export function parseDockerfile(text: string, args: Env = {}): readonly Stage[] {
  const stages: Stage[] = [];
  let stage: { -readonly [K in keyof Stage]: Stage[K] } & { steps: Step[] } | undefined;
  let buildArgs: Env = {};
  for (const [word, rest] of instructions(text)) {
    if (word === "FROM") {
      const [, base, name] = /^(\S+) AS (\S+)$/.exec(rest) ?? [];
      if (base === undefined) throw new Error(`Dockerfile: cannot read FROM ${rest}`);
      buildArgs = {};
      stage = {
        ...{ name: name!, base, steps: [], env: {}, cwd: "/", user: "0:0" },
        ...{ entrypoint: [], healthcheck: [], volumes: [] },
      };
      stages.push(stage);
      continue;
    }
    if (stage === undefined) throw new Error(`Dockerfile: ${word} before FROM`);
    const { cwd } = stage;
    switch (word) {
      case "ARG": {
        const [name, value = ""] = rest.split("=", 2);
        buildArgs = { ...buildArgs, [name!]: args[name!] ?? value };
        break;
      }
      case "ENV":
        for (const [, name, value] of rest.matchAll(/(\w+)=("[^"]*"|\S+)/g)) {
          stage.env = { ...stage.env, [name!]: value!.replaceAll('"', "") };
        }
        break;
      case "WORKDIR":
        stage.cwd = rest;
        stage.steps.push({
          kind: "run",
          command: `mkdir -p ${rest}`,
          env: {},
          cwd: "/",
        });
        break;
      case "RUN":
        stage.steps.push({ kind: "run", command: rest, env: { ...stage.env, ...buildArgs }, cwd });
        break;
      case "COPY": {
        const [, from, paths] = /^(?:--from=(\S+) )?([^]*)$/.exec(rest)!;
        const words = paths!.split(/\s+/);
        stage.steps.push({
          kind: "copy",
          from,
          sources: words.slice(0, -1),
          target: words.at(-1)!,
          cwd,
        });
        break;
      }
      case "USER":
        stage.user = rest;
        break;
      case "ENTRYPOINT":
        stage.entrypoint = JSON.parse(rest);
        break;
      case "VOLUME":
        stage.volumes = JSON.parse(rest);
        break;
      case "HEALTHCHECK":
        stage.healthcheck = JSON.parse(/ CMD (\[.*\])$/.exec(rest)![1]!);
        break;
      case "EXPOSE":
        break;
      default:
        throw new Error(`Dockerfile: ${word} is not known here`);
    }
  }
  return stages;
}

/** What of the project a build sees: `*` first, then the exceptions. */
export function parseDockerignore(text: string): readonly string[] {
  const lines = text.split("\n").filter((line) => !/^\s*(#|$)/.test(line));
  if (lines[0] !== "*" || !lines.slice(1).every((line) => line.startsWith("!"))) {
    throw new Error(".dockerignore: want * and then only exceptions");
  }
  return lines.slice(1).map((line) => line.slice(1));
}
