import { DLQ_HEADER } from "../../src/contracts/subjects.js";
import type { RedrivenMessage } from "../../src/operators/dead-letters/destination.js";
import type { RedriveDeps } from "../../src/operators/dead-letters/redrive.js";
import {
  type DeadLetterStore,
  parseDeadLetter,
  type StoredDeadLetter,
} from "../../src/operators/dead-letters/stored-dead-letter.js";
import { headersWith } from "./deliveries.js";

/** When the dead letters of these tests failed, in ms since the epoch. */
export const FAILED_AT = Date.parse("2026-01-02T03:04:05.678Z");

/** The fields of a dead letter that a test states; the others are those of a drop the planner gave up. */
export interface Stated {
  readonly seq?: number;
  readonly subject?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly body?: Uint8Array;
}

const DROP = { drop_id: "d1", user_id: "42", visibility: "public", created_at: 1_700_000_000_000 };

/** A dead letter of a consumer. */
export function deadLetterWith({
  seq = 17,
  subject = "dlq.exhausted.drop_created",
  headers,
  json = DROP,
  body,
}: Stated = {}): StoredDeadLetter {
  return parseDeadLetter({
    seq,
    subject,
    time: FAILED_AT + 1,
    body: body ?? Buffer.from(JSON.stringify(json)),
    headers: headersWith({
      [DLQ_HEADER.reason]: subject.split(".")[1] as string,
      [DLQ_HEADER.error]: "GetFollowersList: INTERNAL: no",
      [DLQ_HEADER.errorCode]: "failed",
      [DLQ_HEADER.stream]: "DROPS",
      [DLQ_HEADER.streamSeq]: "4",
      [DLQ_HEADER.consumer]: "planner",
      [DLQ_HEADER.subject]: "drops.created",
      [DLQ_HEADER.deliveries]: "5",
      [DLQ_HEADER.firstSeen]: new Date(FAILED_AT - 60_000).toISOString(),
      [DLQ_HEADER.failedAt]: new Date(FAILED_AT).toISOString(),
      [DLQ_HEADER.redriveCount]: "0",
      ...headers,
    }),
  });
}

/** A dead letter of the bridge: it has a channel, and no stream. */
export function bridgeDeadLetter(channel: string, body: Uint8Array, stated: Stated = {}): StoredDeadLetter {
  const deadLetter = deadLetterWith({ subject: `dlq.invalid.${channel}`, body, ...stated });
  const kept = [...deadLetter.headers.entries()].filter(([name]) => !/^Dlq-(Stream|Stream-Seq|Consumer)$/.test(name));
  const headers = headersWith({ ...Object.fromEntries(kept), [DLQ_HEADER.subject]: channel });
  return parseDeadLetter({
    seq: deadLetter.summary.seq,
    subject: deadLetter.subject,
    time: deadLetter.storedAt,
    headers,
    body,
  });
}

/** A DLQ in memory. */
function storeOf(held: Map<number, StoredDeadLetter>): DeadLetterStore {
  return {
    async *read({ after = 0 } = {}) {
      for (const deadLetter of [...held.values()]) if (deadLetter.summary.seq > after) yield deadLetter;
    },
    find: async (seq) => held.get(seq),
    remove: async (seq) => void held.delete(seq),
  };
}

/** Ports that redrive those dead letters: what was published, and how long was waited. */
export function redriveBench(deadLetters: readonly StoredDeadLetter[], stated: Partial<RedriveDeps> = {}) {
  const held = new Map(deadLetters.map((deadLetter) => [deadLetter.summary.seq, deadLetter]));
  const published: RedrivenMessage[] = [];
  let now = FAILED_AT + 60_000;
  const deps: RedriveDeps = {
    store: storeOf(held),
    publish: async (message) => void published.push(message),
    logAgeMs: async () => 7 * 86_400_000,
    upstreams: undefined,
    now: () => now,
    pause: async (ms) => {
      now += ms;
    },
    ...stated,
  };
  return { held, published, deps, clock: () => now };
}
