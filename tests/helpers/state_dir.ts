// A throw-away state directory as src/start.sh makes it: 0700, with the link that pinning needs.

/** A directory that is removed when disposed. */
export interface TemporaryDirectory extends AsyncDisposable {
  readonly path: string;
}

/** Makes an empty directory (real path), removed with all below it when disposed. */
export async function createTempDir(prefix = "ateenvd-test-"): Promise<TemporaryDirectory> {
  const path = await Deno.realPath(await Deno.makeTempDir({ prefix }));
  return {
    path,
    [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }),
  };
}

/** Makes a state directory with its `proc` link. */
export async function createStateDir(): Promise<TemporaryDirectory> {
  const dir = await createTempDir("ateenvd-state-");
  await Deno.chmod(dir.path, 0o700);
  await Deno.symlink("/proc", `${dir.path}/proc`);
  return dir;
}
