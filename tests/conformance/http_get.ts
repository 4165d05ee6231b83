// HTTP/1.1 requests as text: `fetch` would choose the Host, and hide what the server does.

/** An answer to a request over HTTP/1.1. */
export interface RawAnswer {
  readonly status: number;
  /** By name in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** Sends `text` and gives all that comes back until the server closes. */
export async function exchangeText(address: string, text: string): Promise<string> {
  const [hostname = "", port = ""] = address.split(":");
  using connection = await Deno.connect({ hostname, port: Number(port) });
  await connection.write(new TextEncoder().encode(text));
  const decoder = new TextDecoder();
  const buffer = new Uint8Array(65_536);
  let received = "";
  for (;;) {
    const read = await connection.read(buffer).catch(() => null);
    if (read === null) return received;
    received += decoder.decode(buffer.subarray(0, read), { stream: true });
  }
}

/** One GET. The header `Connection: close` is sent unless `headers` say otherwise. */
export async function httpGet(
  address: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<RawAnswer> {
  const fields = { Host: "any.host.example", Connection: "close", ...headers };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const text = await exchangeText(address, `GET ${path} HTTP/1.1\r\n${lines}\r\n`);
  const [head = "", ...body] = text.split("\r\n\r\n");
  const [first = "", ...rest] = head.split("\r\n");
  return {
    status: Number(first.split(" ")[1]),
    headers: new Map(rest.map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
    })),
    body: body.join("\r\n\r\n"),
  };
}
