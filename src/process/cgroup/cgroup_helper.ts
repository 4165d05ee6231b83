// The resident helper for cgroups: one shell in the directory that holds them, and its protocol.
// Must not decide who goes where; the agent itself has no access to that file system.
import type { Helper } from "../deno_spawner.ts";

/**
 * One command a line: a verb, a word. One line answers each, in the order of the commands. What was
 * written is read again: a shell need not notice that the kernel refused it.
 *
 * A kill first makes sure that the agent is not inside: see `Cgroups.within`.
 */
export function cgroupScript(agentPid: number): string {
  return String.raw`trap '' HUP INT TERM
agent=${agentPid} home=''
here() {
  where=''
  while IFS= read -r line; do case $line in 0::*) where=${"${line#0::}"} ;; esac; done </proc/self/cgroup
}
holds() {
  while read -r pid; do [ "$pid" != "$2" ] || return 0; done <"$1/cgroup.procs"
  return 1
}
move() { printf '%s' "$1" >"$2/cgroup.procs"; holds "$2" "$1"; }
populated() {
  while read -r name value; do [ "$name $value" != 'populated 1' ] || return 0; done <"$1/cgroup.events"
  return 1
}
remove() {
  for sub in "$1"/*/; do [ ! -d "$sub" ] || remove "${"${sub%/}"}"; done
  command eval 'rmdir "$1"'
}
probe() {
  answer='it is no cgroup v2 directory'
  [ -e cgroup.controllers ] && [ -e cgroup.procs ] || return
  answer='no cgroup can be made in it'
  command eval 'mkdir "$1"' && [ -d "$1" ] || return
  answer='this kernel has no cgroup.kill (Linux 5.14 has)'
  [ -e "$1/cgroup.kill" ] || return
  read -r type <"$1/cgroup.type"
  answer="its cgroups are of type $type, not domain"
  [ "$type" = domain ] || return
  answer='cgroup.kill cannot be written to'
  printf 1 >"$1/cgroup.kill" || return
  answer='processes cannot be moved into its cgroups'
  move $$ "$1" || return
  answer=ok
}
while IFS=' ' read -r verb word; do
  answer=failed
  case $verb in
  probe) probe "$word" ;;
  where) here; answer=$where ;;
  home) home=$word; move $$ "$home" && move "$agent" "$home" && answer=ok ;;
  join)
    [ -d "$word" ] || command eval 'mkdir "$word"'
    move "$agent" "$word" && answer=ok ;;
  leave) move "$agent" "$home" && answer=ok ;;
  kill)
    if [ ! -d "$word" ]; then answer=gone
    elif ! holds "$word" "$agent" || move "$agent" "$home"; then
      printf 1 >"$word/cgroup.kill"
      if populated "$word"; then
        answer=alive count=0
        while [ "$count" -lt 10 ] && read -r pid; do answer="$answer $pid" count=$((count + 1)); done <"$word/cgroup.procs"
      else remove "$word"; answer=gone; fi
    fi ;;
  remove) [ ! -d "$word" ] || populated "$word" || remove "$word"; answer=ok ;;
  alive)
    answer=''
    for dir in [0-9a-f]*; do [ ! -d "$dir" ] || ! populated "$dir" || answer="$answer $dir"; done ;;
  sweep)
    for dir in [0-9a-f]*; do
      case $dir in *[!0-9a-f]*) continue ;; esac
      [ ${"${#dir}"} -ne 32 ] || populated "$dir" || remove "$dir"
    done
    answer=ok ;;
  esac
  printf '%s\n' "$answer"
done 2>/dev/null`;
}

/** The helper has gone, or was never there. */
export class CgroupHelperGoneError extends Error {
  override readonly name = "CgroupHelperGoneError";

  constructor() {
    super("the cgroup helper has ended");
  }
}

/** Talks to one helper process. */
export class CgroupHelper {
  readonly pid: number;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;
  readonly #encoder = new TextEncoder();
  readonly #pending: PromiseWithResolvers<string>[] = [];
  readonly #gone: Promise<void>;
  #alive = true;

  constructor(helper: Helper) {
    this.pid = helper.pid;
    this.#writer = helper.stdin.getWriter();
    // Broken pipes show at the next command, and by the end of its output.
    this.#writer.closed.catch(() => {});
    this.#gone = this.#run(helper);
  }

  /** Whether commands may still be taken. */
  get alive(): boolean {
    return this.#alive;
  }

  /** One command, one answer. @throws CgroupHelperGoneError */
  ask(verb: string, word = "-"): Promise<string> {
    if (!this.#alive) return Promise.reject(new CgroupHelperGoneError());
    const answer = Promise.withResolvers<string>();
    this.#pending.push(answer);
    this.#writer.write(this.#encoder.encode(`${verb} ${word}\n`)).catch(() => {});
    return answer.promise;
  }

  /** Ends the helper, once it has done what it was told. */
  async close(): Promise<void> {
    this.#alive = false;
    await this.#writer.close().catch(() => {});
    await this.#gone;
  }

  async #run(helper: Helper): Promise<void> {
    const decoder = new TextDecoder();
    let text = "";
    try {
      for await (const chunk of helper.stdout) {
        const lines = (text + decoder.decode(chunk, { stream: true })).split("\n");
        text = lines.pop()!;
        for (const line of lines) this.#pending.shift()?.resolve(line);
      }
    } catch {
      // As good as its end.
    }
    this.#alive = false;
    for (const answer of this.#pending.splice(0)) answer.reject(new CgroupHelperGoneError());
    await this.#writer.close().catch(() => {});
    await helper.exit.catch(() => {});
  }
}
