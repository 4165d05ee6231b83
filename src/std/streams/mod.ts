// The few functions of @std/streams that this project uses, thin over Web Streams.
// Stands in for the JSR package of the same name; must not import anything of ours.

/**
 * All bytes of a stream as one ArrayBuffer. Holds the whole content in memory (twice while joining).
 */
export async function toArrayBuffer(stream: ReadableStream<Uint8Array>): Promise<ArrayBuffer> {
  return await new Response(stream as ReadableStream<Uint8Array<ArrayBuffer>>).arrayBuffer();
}

/**
 * All of a stream as one string: strings as they are, bytes decoded as UTF-8 (also where a character is
 * split between chunks).
 */
export async function toText(stream: ReadableStream): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream) {
    text += typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}
