// The resident helper of a kill: one shell that sees all processes and signals any of them.
// Must not decide whom to signal; knows its pipes and its protocol only.
import type { Helper } from "../deno_spawner.ts";
import { SENTINEL_MARKER } from "./process_snapshot.ts";

/**
 * A running shell needs no descriptor and, for signals and slow scans, no process from the kernel: it
 * works when the agent has run out of both. One command a line: a verb, one word, more words.
 * `command eval` keeps a POSIX shell alive when it cannot fork. `read` drops NUL bytes, so the slow scan
 * sees an environment as one line.
 */
export function helperScript(marker: string): string {
  const sentinel = `${marker}=${SENTINEL_MARKER}`;
  const afterMarker = "${line#*" + marker + "=}";
  return String.raw`trap '' HUP INT TERM
read -r boot </proc/sys/kernel/random/boot_id
begin() { read -r now etc </proc/uptime; printf 'U %s %s\n' "$now" "$boot"; }
while IFS=' ' read -r verb word rest; do
  case $verb in
  scan)
    begin
    command eval '${sentinel} grep -szaH -e "^${marker}=[0-9a-f]*$" -e "^[0-9][0-9]* (" \
      /proc/[0-9]*/stat /proc/self/environ /proc/[0-9]*/environ'
    printf '\nEND %s\n' "$word" ;;
  slow)
    begin
    for dir in /proc/[0-9]*; do
      printf '%s/stat:' "$dir"
      while IFS= read -r line || [ -n "$line" ]; do printf '%s\n' "$line"; done <"$dir/stat"
      printf '\0'
    done
    for dir in /proc/[0-9]*; do
      while IFS= read -r line || [ -n "$line" ]; do
        case $line in *${marker}=*)
          printf '%s/environ:${marker}=%.32s\0' "$dir" "${afterMarker}"; break ;;
        esac
      done <"$dir/environ"
    done
    printf '/proc/self/environ:${sentinel}\0\nEND %s\n' "$word" ;;
  signal) for pid in $rest; do kill -s "$word" -- "$pid"; done ;;
  adopt)
    wanted=${"${rest%% *}"} record=${"${rest#* }"}
    if read -r score </proc/"$word"/oom_score_adj && [ "$score" -lt "$wanted" ]; then
      printf '%s' "$wanted" >/proc/"$word"/oom_score_adj
    fi
    stat=''
    while IFS= read -r line || [ -n "$line" ]; do stat="$stat $line"; done </proc/"$word"/stat
    set -f; set -- ${"${stat##*) }"}; set +f
    [ -z "$boot" ] || [ -z "${"${20}"}" ] || [ ! -f "$record" ] ||
      printf '{"leaderPid":%s,"startTicks":%s,"bootId":"%s"}\n' "$word" "${"${20}"}" "$boot" >>"$record" ;;
  fifo) [ -e "$rest" ] || command eval 'mkfifo -m 600 "$rest"' ;;
  esac
done 2>/dev/null`;
}

/** How many pids one line carries: a shell's list of words is no place for all of a fork storm. */
const PIDS_PER_LINE = 500;

/** Signals that the helper sends. */
export type KillSignal = "STOP" | "CONT" | "TERM" | "KILL";

/** The helper has gone, or was never there. */
export class HelperGoneError extends Error {
  override readonly name = "HelperGoneError";
}

interface PendingScan {
  readonly end: string;
  readonly answer: PromiseWithResolvers<string>;
}

/** Talks to one helper process. Commands are done in the order in which they are given. */
export class KillHelper {
  readonly pid: number;
  /** Resolves once the helper has ended and been reaped. Never rejects. */
  readonly gone: Promise<void>;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;
  readonly #encoder = new TextEncoder();
  #pending: PendingScan | undefined;
  #alive = true;

  constructor(helper: Helper) {
    this.pid = helper.pid;
    this.#writer = helper.stdin.getWriter();
    // Broken pipes show at the next command, and by the end of its output.
    this.#writer.closed.catch(() => {});
    this.gone = this.#run(helper);
  }

  /** Whether commands may still be taken. */
  get alive(): boolean {
    return this.#alive;
  }

  /**
   * One look at all processes: text for `parseSnapshot`. One at a time. `slow` takes no further
   * process, and tens of milliseconds.
   * @throws HelperGoneError
   */
  scan(how: "scan" | "slow"): Promise<string> {
    if (!this.#alive) return Promise.reject(new HelperGoneError("the kill helper has ended"));
    // Longer than any name of a process, so that none can look like it.
    const nonce = crypto.randomUUID();
    const answer = Promise.withResolvers<string>();
    this.#pending = { end: `\nEND ${nonce}\n`, answer };
    this.#send(`${how} ${nonce}\n`);
    return answer.promise;
  }

  /** Signals processes, and process groups where negative. Those that are gone are passed over. */
  signal(signal: KillSignal, pids: readonly number[]): void {
    for (let from = 0; from < pids.length; from += PIDS_PER_LINE) {
      this.#send(`signal ${signal} ${pids.slice(from, from + PIDS_PER_LINE).join(" ")}\n`);
    }
  }

  /**
   * Makes a process the kernel's choice when memory runs out, if its score is below `score`, and adds a
   * line that identifies it to the file `record`, if that is there: an absolute path without line ends.
   */
  adopt(pid: number, score: number, record: string): void {
    this.#send(`adopt ${pid} ${score} ${record}\n`);
  }

  /** Makes a FIFO at `path`, an absolute path without line ends, unless something is there. */
  makeFifo(path: string): void {
    this.#send(`fifo - ${path}\n`);
  }

  /** Ends the helper. */
  async close(): Promise<void> {
    this.#alive = false;
    await this.#writer.close().catch(() => {});
    await this.gone;
  }

  #send(line: string): void {
    this.#writer.write(this.#encoder.encode(line)).catch(() => {});
  }

  async #run(helper: Helper): Promise<void> {
    const decoder = new TextDecoder("latin1");
    let text = "";
    try {
      for await (const chunk of helper.stdout) {
        text += decoder.decode(chunk);
        const pending = this.#pending;
        if (pending === undefined || !text.endsWith(pending.end)) continue;
        this.#pending = undefined;
        pending.answer.resolve(text.slice(0, -pending.end.length));
        text = "";
      }
    } catch {
      // As good as its end.
    }
    this.#alive = false;
    this.#pending?.answer.reject(new HelperGoneError("the kill helper has ended"));
    this.#pending = undefined;
    await this.#writer.close().catch(() => {});
    await helper.exit.catch(() => {});
  }
}
