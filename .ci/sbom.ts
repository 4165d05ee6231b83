// Writes dist/sbom.cdx.json (CycloneDX): the libraries that are in the agent and the CLI, with the checksums of
// deno.lock. What only tests use is not in it. `deno task sbom`.
interface NpmPackage {
  readonly name: string;
  readonly version: string;
}

const ENTRIES = ["src/main.ts", "src/cli.ts"];

async function reachedPackages(entry: string): Promise<readonly NpmPackage[]> {
  const { stdout, success } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", entry],
    stderr: "inherit",
  }).output();
  if (!success) throw new Error(`deno info ${entry}`);
  const { modules, npmPackages } = JSON.parse(new TextDecoder().decode(stdout)) as {
    modules: readonly { kind: string; npmPackage?: string }[];
    npmPackages: Readonly<Record<string, NpmPackage & { dependencies: readonly string[] }>>;
  };
  const reached = new Set(modules.flatMap(({ npmPackage }) => npmPackage ?? []));
  for (const id of reached) for (const next of npmPackages[id]!.dependencies) reached.add(next);
  return [...reached].map((id) => npmPackages[id]!);
}

const { name, version, license } = JSON.parse(await Deno.readTextFile("deno.json"));
const { npm } = JSON.parse(await Deno.readTextFile("deno.lock")) as {
  npm: Readonly<Record<string, { integrity: string }>>;
};
const packages = new Map<string, NpmPackage>();
for (const entry of ENTRIES) {
  for (const { name, version } of await reachedPackages(entry)) {
    packages.set(`${name}@${version}`, { name, version });
  }
}
const components = [...packages].sort(([a], [b]) => a < b ? -1 : 1).map(
  ([id, { name, version }]) => {
    const integrity = npm[id]?.integrity;
    if (integrity === undefined) throw new Error(`${id} is not in deno.lock`);
    const content = Uint8Array.fromBase64(integrity.replace(/^sha512-/, "")).toHex();
    return {
      type: "library",
      "bom-ref": id,
      name,
      version,
      purl: `pkg:npm/${name.replace(/^@/, "%40")}@${version}`,
      hashes: [{ alg: "SHA-512", content }],
    };
  },
);
await Deno.mkdir("dist", { recursive: true });
await Deno.writeTextFile(
  "dist/sbom.cdx.json",
  JSON.stringify(
    {
      bomFormat: "CycloneDX",
      specVersion: "1.5",
      version: 1,
      metadata: {
        component: { type: "application", name, version, licenses: [{ license: { id: license } }] },
      },
      components,
    },
    null,
    2,
  ) + "\n",
);
console.log(`dist/sbom.cdx.json: ${components.length} libraries`);
