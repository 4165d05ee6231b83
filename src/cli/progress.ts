// The progress bar of a copy: bytes, rate and time left, on a terminal only.
// Must not know what is copied.
// @ts-types="@types/cli-progress"
import cliProgress from "cli-progress";
import type { Sink } from "./stdio.ts";

/** Told of bytes as they pass. */
export interface Progress extends Disposable {
  add(bytes: number): void;
  /** The copy begins again. */
  restart(): void;
}

const NO_PROGRESS: Progress = { add() {}, restart() {}, [Symbol.dispose]() {} };

const BAR_COLUMNS = 24;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** `1536` -> `1.5 KiB` */
export function formatBytes(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[power]}`;
}

function formatSeconds(seconds: number): string {
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return parts.slice(parts[0] === 0 ? 1 : 0).map((part) => String(part).padStart(2, "0")).join(":");
}

/** Where a copy stands, as one line. `totalBytes` is undefined where nobody knows it. */
export function formatProgress(
  label: string,
  bytes: number,
  totalBytes: number | undefined,
  elapsedMs: number,
): string {
  const rate = elapsedMs > 0 ? bytes / (elapsedMs / 1000) : 0;
  const speed = `${formatBytes(rate)}/s`;
  if (totalBytes === undefined) return `${label}  ${formatBytes(bytes)}  ${speed}`;
  const share = totalBytes === 0 ? 1 : Math.min(1, bytes / totalBytes);
  const filled = Math.round(share * BAR_COLUMNS);
  const bar = "#".repeat(filled) + "-".repeat(BAR_COLUMNS - filled);
  const left = rate > 0
    ? formatSeconds(Math.ceil(Math.max(0, totalBytes - bytes) / rate))
    : "--:--";
  return `${label}  [${bar}] ${String(Math.floor(share * 100)).padStart(3)}%  ` +
    `${formatBytes(bytes)} of ${formatBytes(totalBytes)}  ${speed}  ${left} left`;
}

/** Shows a bar on `sink` where that is a terminal, until it is disposed. */
export function openProgress(sink: Sink, label: string, totalBytes: number | undefined): Progress {
  if (!sink.isTerminal) return NO_PROGRESS;
  const encoder = new TextEncoder();
  const bar = new cliProgress.SingleBar({
    format: (_options, params) =>
      formatProgress(label, params.value, totalBytes, Date.now() - params.startTime),
    stream: toNodeStream(sink, (text) => encoder.encode(text)),
    // Signals are the business of cli.ts.
    gracefulExit: false,
  });
  let bytes = 0;
  bar.start(totalBytes ?? 0, 0);
  return {
    add(more) {
      bytes += more;
      bar.update(bytes);
    },
    restart() {
      bytes = 0;
      bar.update(0);
    },
    [Symbol.dispose]: () => bar.stop(),
  };
}

/** As much of a tty.WriteStream as cli-progress uses. */
function toNodeStream(sink: Sink, encode: (text: string) => Uint8Array): NodeJS.WritableStream {
  let last = Promise.resolve();
  return {
    isTTY: true,
    get columns() {
      return sink.columns;
    },
    write(text: string) {
      // In order, and a terminal that has gone is no reason to stop the copy.
      last = last.then(() => sink.write(encode(text))).catch(() => {});
      return true;
    },
  } as unknown as NodeJS.WritableStream;
}
