// Random choices of the fuzzer, all out of one seed.
// Pure; must not import the product.
import { createRandom } from "../scenario.ts";
import { join } from "./frames.ts";

/** See the head of this file. */
export class Dice {
  readonly next: () => number;

  constructor(seed: number) {
    this.next = createRandom(seed);
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  chance(share: number): boolean {
    return this.next() < share;
  }

  pick<T>(values: readonly T[]): T {
    return values[this.below(values.length)]!;
  }

  bytes(length: number): Uint8Array<ArrayBuffer> {
    return Uint8Array.from({ length }, () => this.below(256));
  }

  /** Cuts bytes into a few pieces where no boundary is. */
  cut(bytes: Uint8Array): Uint8Array[] {
    const cuts = Array.from({ length: this.below(3) }, () => this.below(bytes.length + 1))
      .toSorted((a, b) => a - b);
    return [0, ...cuts].map((from, index) => bytes.subarray(from, cuts[index] ?? bytes.length));
  }

  /** Flips, cuts, repeats or inserts bytes. */
  mutate(bytes: Uint8Array): Uint8Array {
    let changed = bytes.slice();
    for (let times = 1 + this.below(4); times > 0; times--) {
      const at = this.below(changed.length + 1);
      const head = changed.subarray(0, at);
      const rest = changed.subarray(at);
      switch (this.below(6)) {
        case 0:
          if (at < changed.length) changed[at]! ^= 1 << this.below(8);
          break;
        case 1:
          if (at < changed.length) changed[at] = this.pick([0, 1, 0x7f, 0x80, 0xff]);
          break;
        case 2:
          changed = head.slice();
          break;
        case 3:
          changed = join(head, this.bytes(1 + this.below(16)), rest);
          break;
        case 4:
          changed = join(head, changed.subarray(Math.max(0, at - this.below(32))));
          break;
        default:
          // A varint that does not end, or names a huge length.
          changed = join(head, new Uint8Array(this.below(12)).fill(0xff), rest);
      }
    }
    return changed;
  }
}
