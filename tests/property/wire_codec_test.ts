import { assertEquals } from "@std/assert";
import {
  create,
  type DescMessage,
  fromBinary,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import fc from "fast-check";
import {
  FileChunkSchema,
  OutputChunkSchema,
  WriteFileRequestSchema,
} from "../../gen/ateenv/v1alpha/guest_pb.ts";
import { codecOf } from "../../src/wire/definitions.ts";

/** grpc-js reads its environment when it is imported, which definitions.ts does for its types only. */
const PERMISSIONS = { permissions: "none" } as const;

/** Bytes on both sides of every border: the fast path, and the lengths of varints. */
const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  fc.constantFrom(126, 127, 128, 1023, 1024, 1025, 16_383, 16_384, 2_097_152).map((length) =>
    new Uint8Array(length).fill(length)
  ),
  // A view into something larger, as the spool hands out.
  fc.uint8Array({ minLength: 2_000, maxLength: 3_000 }).map((array) => array.subarray(500, 1_800)),
);
const unknown = fc.option(
  fc.array(
    fc.record({
      no: fc.integer({ min: 10, max: 1_000 }),
      wireType: fc.constant(2 as const),
      data: fc.uint8Array({ maxLength: 20 }).map((content) =>
        Uint8Array.of(content.length, ...content)
      ),
    }),
    { maxLength: 3 },
  ),
  { nil: undefined },
);

function checkCodec<D extends DescMessage>(
  schema: D,
  messages: fc.Arbitrary<MessageShape<D>>,
): void {
  const codec = codecOf(schema);
  fc.assert(
    fc.property(messages, (message) => {
      const expected = toBinary(schema, message);
      const encoded = codec.serialize(message);
      assertEquals(encoded.byteLength, expected.length);
      // As a grpc-js server does: behind the five bytes of a message's prefix, and touching nothing else.
      const framed = Buffer.alloc(encoded.byteLength + 7, 0xee);
      encoded.copy(framed, 5);
      assertEquals(framed.subarray(0, 5).equals(Buffer.alloc(5, 0xee)), true);
      assertEquals(framed.subarray(-2).equals(Buffer.alloc(2, 0xee)), true);
      const bytes = framed.subarray(5, -2);
      assertEquals(Buffer.compare(bytes, expected), 0);
      assertEquals(codec.deserialize(new Uint8Array(bytes)), fromBinary(schema, expected));
    }),
    { numRuns: 60 },
  );
}

function withUnknown<T extends object>(message: T, fields: unknown): T {
  return fields === undefined ? message : Object.assign(message, { $unknown: fields });
}

Deno.test("a FileChunk's bytes are those of protobuf-es", PERMISSIONS, () => {
  checkCodec(
    FileChunkSchema,
    fc.tuple(bytes, unknown).map(([data, fields]) =>
      withUnknown(create(FileChunkSchema, { data }), fields)
    ),
  );
});

Deno.test("an OutputChunk's bytes are those of protobuf-es", PERMISSIONS, () => {
  const source = fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: -2, max: 300 }));
  checkCodec(
    OutputChunkSchema,
    fc.tuple(bytes, source, unknown).map(([data, source, fields]) =>
      withUnknown(create(OutputChunkSchema, { data, source }), fields)
    ),
  );
});

Deno.test("a WriteFileRequest's bytes are those of protobuf-es", PERMISSIONS, () => {
  const path = fc.oneof(fc.constant(""), fc.string({ unit: "grapheme", maxLength: 20 }));
  const mode = fc.oneof(fc.constant(0), fc.nat(0o7777));
  checkCodec(
    WriteFileRequestSchema,
    fc.tuple(bytes, path, mode, unknown).map(([chunk, path, mode, fields]) =>
      withUnknown(create(WriteFileRequestSchema, { chunk, path, mode }), fields)
    ),
  );
});

Deno.test("fields in any order, repeated or unknown, decode like protobuf-es", PERMISSIONS, () => {
  const field = fc.tuple(fc.constantFrom(0x0a, 0x12, 0x7a), fc.uint8Array({ maxLength: 30 }))
    .map(([tag, content]) => [tag, content.length, ...content]);
  const mode = fc.nat(127).map((value) => [0x18, value]);
  fc.assert(
    fc.property(fc.array(fc.oneof(field, mode), { maxLength: 6 }), (fields) => {
      const input = Uint8Array.from(fields.flat());
      let expected: unknown;
      try {
        expected = fromBinary(WriteFileRequestSchema, input);
      } catch {
        return;
      }
      assertEquals(codecOf(WriteFileRequestSchema).deserialize(input), expected as never);
    }),
  );
});

Deno.test("decoded bytes are a view of the input, not a copy", PERMISSIONS, () => {
  const input = toBinary(FileChunkSchema, create(FileChunkSchema, { data: new Uint8Array(5_000) }));
  assertEquals(codecOf(FileChunkSchema).deserialize(input).data.buffer === input.buffer, true);
});

Deno.test("a request is encoded in one piece, as clients of grpc-js want it", PERMISSIONS, () => {
  for (const length of [0, 10, 5_000]) {
    const message = create(WriteFileRequestSchema, { chunk: new Uint8Array(length).fill(7) });
    const encoded = codecOf(WriteFileRequestSchema).serialize(message);
    assertEquals(encoded instanceof Buffer, true);
    assertEquals(encoded as Buffer, Buffer.from(toBinary(WriteFileRequestSchema, message)));
  }
});
