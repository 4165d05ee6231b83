// Some clients that use an agent in every way, until stdin ends: `load_worker.ts ADDRESS CLIENTS SEED`.
// The last line is what they have done, and what they did not expect.
import { type ServiceError, status } from "@grpc/grpc-js";
import { AgentApi, rejectsWith } from "../../helpers/agent_api.ts";
import { createRandom } from "../scenario.ts";

/** The last line. */
export interface LoadReport {
  readonly done: Readonly<Record<string, number>>;
  /** Codes that may happen, beside OK, and how often they did. */
  readonly refused: Readonly<Record<string, number>>;
  readonly unexpected: readonly string[];
}

const [address = "", clients = "1", seed = "0"] = Deno.args;

const done: Record<string, number> = {};
const refused: Record<string, number> = {};
const unexpected: string[] = [];
let stopping = false;

/** Longest pause between two operations of a client: a hundred of them are a load, and no siege. */
const PAUSE_MS = 3_000;

/** How long the processes live that are not killed before, in milliseconds. */
const LIFE_MS = 10_000;

/** When this process last went on after it had stood still, by its clock; 0 if it never did. */
let wentOnMs = 0;
const TICK_MS = 500;
const STOOD_STILL_MS = 3_000;
let lastTickMs = performance.now();
const ticking = setInterval(() => {
  const nowMs = performance.now();
  if (nowMs - lastTickMs > STOOD_STILL_MS) wentOnMs = nowMs;
  lastTickMs = nowMs;
}, TICK_MS);

/** What a client that was stopped for a while finds when it goes on, and a full agent. */
function isBearable({ code, details }: ServiceError): boolean {
  return code === status.RESOURCE_EXHAUSTED || code === status.UNAVAILABLE ||
    // How grpc-js words a connection that was closed under its calls.
    code === status.INTERNAL && details.includes("RST_STREAM");
}

function same(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}

function check(isTrue: boolean, what: string): void {
  if (!isTrue) unexpected.push(what);
}

class LoadClient {
  readonly #random: () => number;
  readonly #name: string;
  #api = new AgentApi(address);

  constructor(seed: number) {
    this.#random = createRandom(seed);
    this.#name = `load-${seed}`;
  }

  readonly #operations: Readonly<Record<string, () => Promise<void>>> = {
    run: async () => {
      const lines = this.#below(2000);
      const { process, text } = await this.#api.run(["sh", "-c", `seq ${lines}; exit 3`]);
      check(process.exitCode === 3, `run: exit code ${process.exitCode}`);
      const wanted = Array.from({ length: lines }, (_, index) => `${index + 1}\n`).join("");
      check(text === wanted, `run: ${text.length} characters instead of ${wanted.length}`);
    },
    cancelFollow: async () => {
      const id = await this.#api.start(["sh", "-c", "yes | head -c 20000000; exec sleep 10"]);
      {
        using reader = this.#api.outputs(id, { follow: true });
        const most = this.#below(5_000_000);
        while (reader.stdoutBytes < most && await reader.next());
      }
      const code = await this.#kill(id);
      // 0 where all of this took longer than the process lives.
      check(code === 137 || code === 0, `cancelFollow: ${code}`);
    },
    followDeadline: async () => {
      const id = await this.#api.start(["sleep", "10"]);
      using reader = this.#api.outputs(id, { follow: true, deadlineMs: this.#below(50) });
      await rejectsWith(reader.rest(), status.DEADLINE_EXCEEDED);
      await this.#kill(id);
    },
    startDeadline: async () => {
      try {
        const id = await this.#api.start(["sleep", "10"], { deadlineMs: 1 + this.#below(30) });
        await this.#kill(id);
      } catch (error) {
        if ((error as ServiceError).code !== status.DEADLINE_EXCEEDED) throw error;
      }
    },
    halfUpload: async () => {
      const upload = this.#api.upload();
      for (let count = 1 + this.#below(4); count > 0; count--) {
        await upload.send({ path: `${this.#name}/half`, chunk: new Uint8Array(100_000) });
      }
      upload.cancel();
      await rejectsWith(upload.answer, status.CANCELLED);
    },
    upAndDown: async () => {
      const content = this.#bytes(this.#below(2_000_000));
      await this.#api.write(`${this.#name}/file`, content);
      check(same(await this.#api.read(`${this.#name}/file`), content), "upAndDown: other bytes");
    },
    cutDownload: async () => {
      await this.#api.write(`${this.#name}/large`, new Uint8Array(4_000_000));
      const { call } = this.#api.readStream(`${this.#name}/large`);
      for await (const _ of call) break;
      call.cancel();
    },
    leave: async () => {
      await this.#api.start(["sh", "-c", "sleep 2 & sleep 1"]);
    },
    killAtOnce: async () => {
      const code = await this.#kill(await this.#api.start(["true"]));
      check(code === 0 || code === 137, `killAtOnce: ${code}`);
    },
    unknown: async () => {
      const error = await this.#api.get("0".repeat(32)).catch((error: ServiceError) => error);
      if ("code" in error && error.code !== status.NOT_FOUND) throw error;
      check("code" in error, "unknown: found");
    },
    reconnect: async () => {
      const pending = this.#api.get("0".repeat(32)).catch(() => {});
      this.#api[Symbol.dispose]();
      this.#api = new AgentApi(address);
      await pending;
    },
  };

  async work(): Promise<void> {
    const names = Object.keys(this.#operations);
    while (!stopping) {
      const name = names[this.#below(names.length)]!;
      await new Promise((resolve) => setTimeout(resolve, this.#below(PAUSE_MS)));
      const startedMs = performance.now();
      try {
        await this.#operations[name]!();
        done[name] = (done[name] ?? 0) + 1;
      } catch (error) {
        const { code } = error as ServiceError;
        if (code !== undefined && isBearable(error as ServiceError)) {
          refused[status[code]] = (refused[status[code]] ?? 0) + 1;
        } else if (startedMs < wentOnMs) {
          // Its deadline passed while it stood still, or the process it had started was forgotten.
          refused["stood still"] = (refused["stood still"] ?? 0) + 1;
        } else if (code === status.NOT_FOUND && performance.now() - startedMs > LIFE_MS) {
          // It had ended by itself, and made room: the spools of 50 of them fill the limit of all.
          refused["outlived"] = (refused["outlived"] ?? 0) + 1;
        } else unexpected.push(`${name}: ${error}`);
      }
    }
    this.#api[Symbol.dispose]();
  }

  /** Again where it is overdue, which the contract allows and a machine without a free processor brings about. */
  async #kill(id: string): Promise<number> {
    for (;;) {
      try {
        return await this.#api.kill(id);
      } catch (error) {
        if ((error as ServiceError).code !== status.DEADLINE_EXCEEDED) throw error;
        refused["kill overdue"] = (refused["kill overdue"] ?? 0) + 1;
      }
    }
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  #bytes(length: number): Uint8Array {
    // A short piece again and again: its length has no common factor with any size of chunk.
    const piece = Uint8Array.from({ length: 1009 }, () => this.#random() * 256);
    return Uint8Array.from({ length }, (_, index) => piece[index % piece.length]!);
  }
}

const working = Array.from(
  { length: Number(clients) },
  (_, index) => new LoadClient(Number(seed) * 1000 + index).work(),
);
for await (const _ of Deno.stdin.readable);
stopping = true;
await Promise.all(working);
clearInterval(ticking);
const report: LoadReport = { done, refused, unexpected: unexpected.slice(0, 20) };
console.log(JSON.stringify(report));
