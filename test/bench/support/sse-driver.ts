import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInbox, headers, type NatsConnection } from "nats";
import { toNotifyPart } from "../../../src/contracts/notify-parts.js";
import { notifySubject } from "../../../src/contracts/subjects.js";
import { cpuSeconds } from "./measure.js";
import { check } from "./result.js";
import { type ClientAnswer, type ClientRequest, sendRound } from "./sse-shared.js";

export const SETTLE = join(process.cwd(), "test/bench/support/settle.mjs");
const TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/** CPU in microseconds, by process. */
export type Cost = Readonly<Record<string, number>>;

/** `sse-client.ts` or `sse-bare.ts`, in a process of its own. */
export function child(file: string): ChildProcess {
  const script = new URL(file, import.meta.url);
  return fork(script, { execArgv: ["--expose-gc", "--import", "tsx", "--import", SETTLE] });
}

type Answer = Extract<ClientAnswer, { readonly seconds: number }>;

export async function ask(client: ChildProcess, request: ClientRequest): Promise<Answer> {
  client.send(request);
  return answerOf(client);
}

async function answerOf(client: ChildProcess): Promise<Answer> {
  for (;;) {
    const [answer] = (await once(client, "message")) as [ClientAnswer];
    if ("fault" in answer) throw new Error(answer.fault);
    if ("seconds" in answer) return answer;
  }
}

export async function receive(
  client: ChildProcess,
  events: number,
  send: () => Promise<void>,
  latency = false,
): Promise<Answer> {
  client.send({ events, latency } satisfies ClientRequest);
  await once(client, "message");
  const [answer] = await Promise.all([answerOf(client), send()]);
  return answer;
}

interface Publishing {
  readonly streams: number;
  readonly parts?: number;
  readonly begin: number;
  readonly rounds: number;
  readonly roundMs: number;
}

/** As fan-out does, each round awaited before the next. */
export async function publish(
  connection: NatsConnection,
  { streams, parts = 1, begin, rounds, roundMs }: Publishing,
): Promise<void> {
  const inbox = createInbox();
  let acked = 0;
  let roundDone: (() => void) | undefined;
  const subscription = connection.subscribe(inbox, {
    callback: (_, message) => {
      check(message.string().includes('"seq"'), `NOTIFY refuses: ${message.string()}`);
      if (++acked % streams === 0) roundDone?.();
    },
  });
  for (let round = begin; round < begin + rounds; round++) {
    const done = new Promise<void>((resolve) => {
      roundDone = resolve;
    });
    await sendRound(streams, roundMs, (n) => {
      const drop = `u${n}.${round}.${process.hrtime.bigint() / 1_000n}`;
      const head = headers();
      head.set("Nats-Msg-Id", `new_drop:${drop}:u${n}`);
      head.set("traceparent", TRACEPARENT);
      const body = Buffer.from(JSON.stringify({ event: "new_drop", drop_id: drop, created_at: Date.now() }));
      connection.publish(toNotifyPart(notifySubject(`u${n}`), parts), body, { reply: inbox, headers: head });
    });
    await done;
  }
  subscription.unsubscribe();
}

/** Begins to count; the returned function yields the cost of each unit of work. */
export function costs(processes: Readonly<Record<string, number>>): (units: number) => Cost {
  const before = Object.entries(processes).map(([name, pid]) => [name, pid, cpuSeconds(pid)] as const);
  return (units) =>
    Object.fromEntries(before.map(([name, pid, used]) => [name, (1e6 * (cpuSeconds(pid) - used)) / units]));
}
