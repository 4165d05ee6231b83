// A unix socket to listen on: for its owner only, and not in the way of what a killed agent left.
// Must not import gRPC.

/** Permissions that are taken away while the socket is made: it is never open to others, not even briefly. */
const OWNER_ONLY = 0o177;

/**
 * Listens on a unix socket at `path`, mode 0600. A socket that nobody listens on any more is replaced.
 * @throws {Deno.errors.AddrInUse} where somebody does, or where something else has that name
 */
export async function listenUnix(path: string): Promise<Deno.UnixListener> {
  try {
    return bind(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.AddrInUse) || !await isAbandoned(path)) throw error;
    await Deno.remove(path);
    return bind(path);
  }
}

/** The umask belongs to the whole process: nothing else runs before it is put back. */
function bind(path: string): Deno.UnixListener {
  const umask = Deno.umask(OWNER_ONLY);
  try {
    return Deno.listen({ transport: "unix", path });
  } finally {
    Deno.umask(umask);
  }
}

async function isAbandoned(path: string): Promise<boolean> {
  if (!(await Deno.lstat(path)).isSocket) return false;
  try {
    (await Deno.connect({ transport: "unix", path })).close();
    return false;
  } catch (error) {
    return error instanceof Deno.errors.ConnectionRefused;
  }
}
