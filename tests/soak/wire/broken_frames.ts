// A short HTTP/2 conversation, and what can be wrong with its frames.
// Pure; must not import the product.
import type { Dice } from "./dice.ts";
import {
  FLAG,
  FRAME,
  type Frame,
  frame,
  grpcHeaders,
  grpcMessage,
  headerBlock,
  join,
  settings,
  uint32,
} from "./frames.ts";
import { someCall } from "./some_call.ts";

const ODD_NUMBERS = [0, 1, 2, 3, 5, 7, 99, 0x7fff, 0x7fffffff, 0x80000000, 0xffffffff];
const ODD_LENGTHS = [0, 1, 4, 5, 8, 9, 16_384, 16_385, 0xffffff];

/** In order: settings, two calls, and frames that need no call. */
export function conversation(dice: Dice): Frame[] {
  const frames = [
    frame(FRAME.settings, 0, 0, settings([3, 100], [4, 65_535 + dice.below(1_000_000)])),
    frame(FRAME.settings, FLAG.ack, 0, new Uint8Array(0)),
  ];
  for (const stream of [1, 3]) {
    const { path, message } = someCall(dice);
    const block = headerBlock(grpcHeaders(path));
    if (dice.chance(0.3)) {
      const cut = dice.below(block.length);
      frames.push(
        frame(FRAME.headers, 0, stream, block.subarray(0, cut)),
        frame(FRAME.continuation, FLAG.endHeaders, stream, block.subarray(cut)),
      );
    } else {
      frames.push(frame(FRAME.headers, FLAG.endHeaders, stream, block));
    }
    frames.push(frame(FRAME.data, FLAG.endStream, stream, grpcMessage(message)));
    if (dice.chance(0.3)) frames.push(frame(FRAME.rstStream, 0, stream, uint32(dice.below(14))));
  }
  frames.push(
    frame(FRAME.windowUpdate, 0, dice.pick([0, 1, 3]), uint32(1 + dice.below(1 << 20))),
    frame(FRAME.ping, 0, 0, dice.bytes(8)),
    frame(FRAME.priority, 0, dice.pick([1, 3, 5]), join(uint32(0), new Uint8Array([15]))),
  );
  if (dice.chance(0.3)) {
    frames.push(frame(FRAME.goaway, 0, 0, join(uint32(dice.below(5)), uint32(dice.below(14)))));
  }
  return frames;
}

/** Makes something wrong with one frame. */
function breakFrame(dice: Dice, chosen: Frame): void {
  switch (dice.below(7)) {
    case 0:
      chosen.type = dice.below(dice.chance(0.8) ? 12 : 256);
      break;
    case 1:
      chosen.flags ^= 1 << dice.below(8);
      break;
    case 2:
      chosen.stream = dice.pick(ODD_NUMBERS);
      break;
    case 3:
      chosen.length = dice.pick(ODD_LENGTHS);
      break;
    case 4:
      chosen.payload = dice.mutate(chosen.payload);
      break;
    case 5:
      // Padding, with a length that may be more than there is.
      chosen.flags |= FLAG.padded;
      chosen.payload = join(new Uint8Array([dice.below(256)]), chosen.payload);
      break;
    default:
      chosen.payload = join(chosen.payload, dice.bytes(dice.below(dice.chance(0.1) ? 20_000 : 64)));
  }
}

/** A frame that has no place in the conversation. */
function strayFrame(dice: Dice): Frame {
  switch (dice.below(3)) {
    case 0:
      return frame(
        FRAME.settings,
        0,
        0,
        settings([dice.below(10), dice.pick(ODD_NUMBERS)], [
          dice.below(65_536),
          dice.pick(ODD_NUMBERS),
        ]),
      );
    case 1:
      return frame(FRAME.windowUpdate, 0, dice.pick([0, 1, 3]), uint32(dice.pick(ODD_NUMBERS)));
    default:
      return frame(
        dice.below(12),
        dice.below(256),
        dice.pick(ODD_NUMBERS),
        dice.bytes(dice.below(64)),
      );
  }
}

/** Makes something wrong with a list of frames. */
export function breakFrames(dice: Dice, frames: Frame[]): void {
  for (let times = 1 + dice.below(4); times > 0; times--) {
    const at = dice.below(frames.length);
    const chosen = frames[at]!;
    const choice = dice.below(14);
    if (choice < 7) breakFrame(dice, chosen);
    else if (choice < 10) frames.splice(at, 0, strayFrame(dice));
    else if (choice === 10 && frames.length > 1) frames.splice(at, 1);
    else if (choice === 11) frames.splice(at, 0, { ...chosen });
    else if (choice === 12) {
      const other = dice.below(frames.length);
      [frames[at], frames[other]] = [frames[other]!, chosen];
    } else {
      // Many of one kind: a small flood.
      frames.splice(at, 0, ...Array.from({ length: dice.below(300) }, () => ({ ...chosen })));
    }
  }
}
