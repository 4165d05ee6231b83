// Builds the client library as an npm package for Node 20+ in dist/npm: the module graph of src/mod.ts,
// compiled file by file, with declarations. Needs npm (for the compiler and the types), not Deno at run time.
//
//   deno task build:npm

const ROOT = new URL("../", import.meta.url).pathname;
const OUT = `${ROOT}dist/npm`;
/** Where sources and the compiler lie while it is built. */
const WORK = `${ROOT}dist/npm-build`;

const TYPESCRIPT = "5.9.3";
const NODE_TYPES = "20.19.21";

interface DenoConfig {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  readonly imports: Readonly<Record<string, string>>;
}

async function run(program: string, args: readonly string[], cwd: string): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(program, {
    args: [...args],
    cwd,
    stdin: "null",
  })
    .output();
  const text = new TextDecoder().decode(stdout);
  if (code !== 0) {
    throw new Error(`${program} ${args.join(" ")}: ${text}${new TextDecoder().decode(stderr)}`);
  }
  return text;
}

/** Files of ours behind src/mod.ts, relative to the repository, and the npm packages that they import. */
async function moduleGraph(): Promise<{ files: string[]; packages: Set<string> }> {
  const { modules } = JSON.parse(
    await run(Deno.execPath(), ["info", "--json", "src/mod.ts"], ROOT),
  );
  const prefix = `file://${ROOT}`;
  const files: string[] = [];
  const packages = new Set<string>();
  for (const { specifier, dependencies = [] } of modules) {
    if (!specifier.startsWith(prefix)) continue;
    files.push(specifier.slice(prefix.length));
    for (const dependency of dependencies) {
      const name = /^(@[^/]+\/[^/]+|[^@./:][^/:]*)(?:\/|$)/.exec(dependency.specifier)?.[1];
      if (name !== undefined) packages.add(name);
    }
  }
  return { files, packages };
}

/** The package's README: the documentation of the module, whose example is run by the tests. */
async function readme({ name, version }: DenoConfig): Promise<string> {
  const source = await Deno.readTextFile(`${ROOT}src/mod.ts`);
  const comment = /\/\*\*\n(.*?)\n \* @module/s.exec(source)?.[1];
  if (comment === undefined) throw new Error("src/mod.ts has no documentation of the module");
  const text = comment.split("\n").map((line) => line.replace(/^ \* ?/, "")).join("\n").trim();
  return `# ${name}

${text}

Runs on Node 20.10 and newer (\`await using\` needs Node 24 or a compiler, as TypeScript 5.2; otherwise call
\`client.close()\`). Without an address it takes that of the variable ATEENV_ADDRESS, or 127.0.0.1:8080. Version
${version} fits agents of the same minor version.
`;
}

async function removeTree(path: string): Promise<void> {
  await Deno.remove(path, { recursive: true }).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
}

const config: DenoConfig = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
const { files, packages } = await moduleGraph();
const dependencies = Object.fromEntries(
  [...packages].sort().map((name) => {
    const version = /^npm:.+@(\d[^/]*)$/.exec(config.imports[name] ?? "")?.[1];
    if (version === undefined) throw new Error(`${name} has no npm version in deno.json`);
    return [name, `^${version}`];
  }),
);
const manifest = {
  name: config.name,
  version: config.version,
  description: "Client of ateenvd: run commands and move files in a sandbox",
  license: config.license,
  type: "module",
  engines: { node: ">=20.10" },
  exports: { ".": { types: "./src/mod.d.ts", default: "./src/mod.js" } },
  files: ["src", "gen"],
  dependencies,
};

await removeTree(OUT);
await removeTree(WORK);
for (const file of files) {
  await Deno.mkdir(`${WORK}/${file}`.replace(/\/[^/]+$/, ""), { recursive: true });
  await Deno.copyFile(`${ROOT}${file}`, `${WORK}/${file}`);
}
await Deno.writeTextFile(
  `${WORK}/package.json`,
  JSON.stringify({
    private: true,
    type: "module",
    dependencies,
    devDependencies: { typescript: TYPESCRIPT, "@types/node": NODE_TYPES },
  }),
);
// errors.ts has helpers of the agent, which are not called here; only its types are used.
await Deno.writeTextFile(`${WORK}/deno.d.ts`, "declare const Deno: any;\n");
await Deno.writeTextFile(
  `${WORK}/tsconfig.json`,
  JSON.stringify({
    compilerOptions: {
      target: "es2022",
      lib: ["es2023", "esnext.disposable", "dom", "dom.asynciterable"],
      module: "nodenext",
      types: ["node"],
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      skipLibCheck: true,
      verbatimModuleSyntax: true,
      rewriteRelativeImportExtensions: true,
      declaration: true,
      rootDir: ".",
      outDir: OUT,
    },
    files: [...files, "deno.d.ts"],
  }),
);
await run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], WORK);
await run("node_modules/.bin/tsc", ["-p", "."], WORK);
await Deno.writeTextFile(`${OUT}/package.json`, JSON.stringify(manifest, null, 2) + "\n");
await Deno.writeTextFile(`${OUT}/README.md`, await readme(config));
await Deno.copyFile(`${ROOT}LICENSE`, `${OUT}/LICENSE`);
await removeTree(WORK);
console.log(`dist/npm: ${config.name} ${config.version}, ${files.length} modules`);
