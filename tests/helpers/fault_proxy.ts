// A TCP proxy on the way to an agent that cuts, freezes and refuses connections.
// Must not know what passes.

/** What happens to connections. */
export interface FaultProxyOptions {
  /** Cuts a connection once it has carried this many bytes towards the client. */
  readonly cutAfterBytes?: number;
  /** Cuts the connection that carries the so-many-th byte of all, in both directions; ascending. */
  readonly cutAtTotalBytes?: readonly number[];
  /** Cuts a connection this long after it was made, in milliseconds. */
  readonly cutAfterMs?: number;
}

/** A proxy that listens. */
export interface FaultProxy extends AsyncDisposable {
  readonly address: string;
  /** Connections made so far. */
  readonly connections: number;
  /** Connections cut so far. */
  readonly cuts: number;
  /** Bytes carried towards the agent so far. */
  readonly bytesToAgent: number;
  /** Bytes carried towards the client so far. */
  readonly bytesToClient: number;
  options: FaultProxyOptions;
  /** Closes each new connection at once. */
  refuse: boolean;
  /** Where new connections lead. */
  target: string;
  /** Cuts all connections now. */
  cut(): void;
  /** Lets the present connections stand, and carries nothing on them any more: a resumed sandbox. */
  freeze(): void;
  /** Resolves once this many connections were made, since the start. */
  waitConnections(count: number): Promise<void>;
}

interface Link {
  readonly client: Deno.TcpConn;
  readonly agent: Deno.TcpConn;
  frozen: boolean;
  closed: boolean;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** Starts a proxy to `target` (`host:port`) on a free port of 127.0.0.1. */
export function startFaultProxy(target: string, options: FaultProxyOptions = {}): FaultProxy {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const links = new Set<Link>();
  const work = new Set<Promise<void>>();
  const waiters = new Set<{ count: number; resolve: () => void }>();
  let connections = 0;
  let cuts = 0;
  let bytesToAgent = 0;
  let bytesToClient = 0;
  let totalBase = 0;
  let totalCuts = 0;
  let current = options;

  const close = (link: Link) => {
    if (link.closed) return;
    link.closed = true;
    clearTimeout(link.timer);
    links.delete(link);
    for (const conn of [link.client, link.agent]) {
      try {
        conn.close();
      } catch {
        // Closed by its peer.
      }
    }
  };
  const cutLink = (link: Link) => {
    if (link.closed) return;
    cuts += 1;
    close(link);
  };

  const carry = async (link: Link, from: Deno.TcpConn, to: Deno.TcpConn, toClient: boolean) => {
    const buffer = new Uint8Array(64 * 1024);
    let carried = 0;
    try {
      for (;;) {
        const limit = toClient ? proxy.options.cutAfterBytes ?? Infinity : Infinity;
        if (carried >= limit) return cutLink(link);
        const count = await from.read(buffer.subarray(0, Math.min(buffer.length, limit - carried)));
        if (count === null) break;
        if (link.frozen) continue;
        for (let rest = buffer.subarray(0, count); rest.length > 0;) {
          rest = rest.subarray(await to.write(rest));
        }
        carried += count;
        if (toClient) bytesToClient += count;
        else bytesToAgent += count;
        const next = proxy.options.cutAtTotalBytes?.[totalCuts];
        if (next !== undefined && bytesToClient + bytesToAgent - totalBase >= next) {
          totalCuts += 1;
          return cutLink(link);
        }
      }
    } catch {
      // One end has gone.
    }
    close(link);
  };

  const serve = async (client: Deno.TcpConn) => {
    connections += 1;
    for (const waiter of waiters) if (connections >= waiter.count) waiter.resolve();
    if (proxy.refuse) return client.close();
    const separator = proxy.target.lastIndexOf(":");
    let agent: Deno.TcpConn;
    try {
      agent = await Deno.connect({
        hostname: proxy.target.slice(0, separator),
        port: Number(proxy.target.slice(separator + 1)),
      });
    } catch {
      return client.close();
    }
    client.setNoDelay(true);
    agent.setNoDelay(true);
    const link: Link = { client, agent, frozen: false, closed: false, timer: undefined };
    links.add(link);
    if (proxy.options.cutAfterMs !== undefined) {
      link.timer = setTimeout(() => cutLink(link), proxy.options.cutAfterMs);
    }
    await Promise.all([carry(link, client, agent, false), carry(link, agent, client, true)]);
  };

  const accept = async () => {
    for await (const client of listener) {
      const done: Promise<void> = serve(client).finally(() => work.delete(done));
      work.add(done);
    }
  };

  const proxy = {
    address: `127.0.0.1:${listener.addr.port}`,
    get connections() {
      return connections;
    },
    get cuts() {
      return cuts;
    },
    get bytesToAgent() {
      return bytesToAgent;
    },
    get bytesToClient() {
      return bytesToClient;
    },
    get options() {
      return current;
    },
    /** Bytes and cuts of cutAtTotalBytes count anew. */
    set options(value: FaultProxyOptions) {
      current = value;
      totalBase = bytesToAgent + bytesToClient;
      totalCuts = 0;
    },
    refuse: false,
    target,
    cut() {
      for (const link of [...links]) cutLink(link);
    },
    freeze() {
      for (const link of links) link.frozen = true;
    },
    async waitConnections(count: number) {
      if (connections >= count) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      const waiter = { count, resolve };
      waiters.add(waiter);
      await promise;
      waiters.delete(waiter);
    },
    async [Symbol.asyncDispose]() {
      listener.close();
      for (const link of [...links]) close(link);
      await accepting;
      await Promise.allSettled([...work]);
    },
  };
  const accepting = accept();
  return proxy;
}
