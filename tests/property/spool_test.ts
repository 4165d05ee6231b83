// Any split of appends, drops, losses and reads: what a reader gets is what was written at its offset.
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { AgentError } from "../../src/errors.ts";
import { followOutputs, type ProcessSpool } from "../../src/spool/mod.ts";
import { newestRun } from "../../src/spool/recover.ts";
import { createMemoryStore, isPattern, pattern, settled } from "../helpers/spool_fixture.ts";

const KIB = 1024;
const none = { permissions: "none" } as const;

/** Mostly small, now and then large enough to cross segments and limits. */
const size = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 300 }) },
  { weight: 2, arbitrary: fc.integer({ min: 1, max: 20 * KIB }) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 1500 * KIB }) },
);
const offset = fc.oneof(fc.integer({ min: 0, max: 3000 * KIB }), fc.constant(2 ** 63));
const source = fc.constantFrom("stdout" as const, "stderr" as const);

type Step =
  | { readonly kind: "append"; readonly source: "stdout" | "stderr"; readonly size: number }
  | { readonly kind: "read"; readonly source: "stdout" | "stderr"; readonly offset: number }
  | { readonly kind: "follow"; readonly offset: number; readonly pull: number }
  | { readonly kind: "flush" | "drop" | "turn" | "fail" | "heal" | "stop" };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("append" as const), source, size }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("read" as const), source, offset }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("follow" as const),
      offset,
      pull: fc.integer({ min: 0, max: 3 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom("flush", "drop", "turn", "fail", "heal", "stop" as const),
    }),
  },
);

/** Follows both streams and checks each piece against its offset. */
class CheckedReader {
  readonly next: Record<"stdout" | "stderr", number>;
  overtaken = false;
  done: Promise<void>;
  readonly #pieces: AsyncIterableIterator<{ source: "stdout" | "stderr"; data: Uint8Array }>;

  constructor(spool: ProcessSpool, at: number, readonly pull: number) {
    this.next = { stdout: at, stderr: at };
    this.#pieces = followOutputs({
      spool,
      stdoutOffset: at,
      stderrOffset: at,
      follow: true,
      maxPieceBytes: 100 * KIB,
    });
    this.done = this.#run(spool);
  }

  async #run(spool: ProcessSpool): Promise<void> {
    try {
      for await (const { source, data } of this.#pieces) {
        assert(data.byteLength > 0 && data.byteLength <= 100 * KIB);
        assert(isPattern(this.next[source], data), `wrong bytes at ${this.next[source]}`);
        this.next[source] += data.byteLength;
        for (let i = 0; i < this.pull; i++) await settled();
      }
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      assertEquals(error.kind, "out-of-range");
      const first = spool.firstOffsets;
      assert(first.stdout > this.next.stdout || first.stderr > this.next.stderr);
      this.overtaken = true;
    }
  }

  async stop(): Promise<void> {
    await this.#pieces.return!();
    this.overtaken = true;
    await this.done;
  }
}

async function checkRead(spool: ProcessSpool, { source, offset }: Step & { kind: "read" }) {
  const stream = spool[source];
  const end = stream.endOffset;
  try {
    const data = await stream.readAt(offset, 50 * KIB);
    if (data === null) assert(offset >= end);
    else assert(data.byteLength > 0 && data.byteLength <= 50 * KIB && isPattern(offset, data));
  } catch (error) {
    assert(error instanceof AgentError && error.kind === "out-of-range");
    assert(offset < stream.firstOffset);
  }
}

Deno.test("any appends, drops, losses and reads give the right bytes", none, async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(0, 64 * KIB, 100_000, 1024 * KIB),
      fc.constantFrom(0, 256 * KIB, 4096 * KIB),
      fc.array(step, { maxLength: 40 }),
      async (outputLimitBytes, spoolLimitBytes, steps) => {
        const { files, logger, store } = createMemoryStore({
          outputLimitBytes,
          spoolLimitBytes,
          tailBudgetBytes: 300 * KIB,
        });
        const spool = store.create("/p");
        const readers: CheckedReader[] = [];
        let isLossy = false;
        let isFaulty = false;
        for (const step of steps) {
          if (step.kind === "append") {
            const stream = spool[step.source];
            await stream.append(pattern(stream.endOffset, step.size));
            if (outputLimitBytes > 0) {
              const most = outputLimitBytes + outputLimitBytes / 8;
              assert(stream.bytes <= most);
              const least = Math.min(outputLimitBytes, stream.endOffset);
              if (!isLossy && spoolLimitBytes === 0) assert(stream.bytes >= least);
            }
          } else if (step.kind === "read") await checkRead(spool, step);
          else if (step.kind === "follow") {
            readers.push(new CheckedReader(spool, step.offset, step.pull));
          } else if (step.kind === "flush") await spool.flush();
          else if (step.kind === "drop") isLossy = spool.stdout.dropOldest(1000) || isLossy;
          else if (step.kind === "turn") await settled();
          else if (step.kind === "stop") await readers.shift()?.stop();
          else {
            files.writeError = step.kind === "fail" ? new Error("(os error 28)") : undefined;
            files.partialBytes = 7;
            isLossy = isFaulty = true;
          }
          assertEquals(store.bytes, spool.bytes);
          assert(spool.stdout.firstOffset <= spool.stdout.endOffset);
        }
        files.writeError = undefined;
        spool.stdout.end();
        spool.stderr.end();
        spool.finish();
        for (const reader of readers) {
          await reader.done;
          if (reader.overtaken) continue;
          for (const source of ["stdout", "stderr"] as const) {
            assert(reader.next[source] >= spool.endOffsets[source]);
          }
        }
        await spool.flush();
        await settled();
        if (!isFaulty) assertEquals(logger.lines, []);
        assertEquals([store.tailBytes, files.open, files.maxConcurrent <= 2], [0, 0, true]);
        for (const source of ["stdout", "stderr"] as const) {
          let at = spool.firstOffsets[source];
          while (at < spool.endOffsets[source]) {
            const data = (await spool[source].readAt(at, 1024 * KIB))!;
            assert(isPattern(at, data));
            at += data.byteLength;
          }
        }
        await spool.remove();
        assertEquals([files.names, store.bytes], [[], 0]);
      },
    ),
    { numRuns: 150 },
  );
});

Deno.test("the newest run is contiguous, ends last, and could not be longer", none, () => {
  const segment = fc.record({ start: fc.nat(60), size: fc.nat(10) })
    .map(({ start, size }) => ({ start, end: start + size }));
  fc.assert(fc.property(
    fc.uniqueArray(segment, { selector: ({ start }) => start }),
    (segments) => {
      const { kept, stale } = newestRun(segments);
      assertEquals(kept.length + stale.length, segments.length);
      kept.slice(1).forEach(({ start }, index) => assertEquals(start, kept[index]!.end));
      assert(stale.every(({ start }) => start < kept[0]!.start));
      assert(stale.length === 0 || stale.at(-1)!.end !== kept[0]!.start);
    },
  ));
});
