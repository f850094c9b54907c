import { createParser, type EventSourceMessage } from "eventsource-parser";
import { Redis } from "ioredis";
import { STREAM } from "../../contracts/subjects.js";
import { Visibility } from "../../gen/avion/posts.js";
import { pause } from "../../kernel/time.js";
import { HOMES } from "../../state/index.js";
import type { Sandbox } from "../sandbox.js";
import { BIG_AUTHOR } from "../world/seed.js";

export interface Stage {
  readonly sandbox: Sandbox;
  readonly redis: Redis;
  readonly nats: Sandbox["connection"];
  readonly reader: string;
  readonly author: string;
  stream: Stream;
}

/** Each step resolves to a line about what was seen. */
export interface Step {
  readonly title: string;
  readonly run: (stage: Stage) => Promise<string>;
}

/** Picks a reader and an author they follow, and opens the reader's stream. */
export async function setStage(sandbox: Sandbox): Promise<Stage> {
  const { world, closers, httpUrl, connection: nats } = sandbox;
  const reader = "ada";
  const { user_ids: following } = await world.users.getFollowingList({ user_id: reader });
  const author = following.find((id) => id !== BIG_AUTHOR);
  expect(author !== undefined, "ada follows nobody");
  const redis = new Redis(sandbox.redis.url);
  closers.add("demo's Redis", () => redis.disconnect());
  await eventually(
    "the service's readiness",
    async () => (await fetch(`${httpUrl}/readyz`)).ok && (await workerPulls(nats)),
  );
  const stage = { sandbox, redis, nats, reader, author, stream: await openStream(sandbox, { reader }) };
  closers.add("demo's stream", () => stage.stream.close());
  return stage;
}

async function workerPulls(nats: Stage["nats"]): Promise<boolean> {
  const manager = await nats.jetstreamManager();
  return (await manager.consumers.info(STREAM.drops, "planner")).num_waiting > 0;
}

export const holds = async ({ redis }: Stage, key: string, drop: string): Promise<boolean> =>
  (await redis.zscore(key, drop)) != null;

let posted = 0;

/** Resolves to the id of the drop. Each has another text: one text may be posted a few times only. */
export async function post(
  { sandbox }: Stage,
  user_id: string,
  visibility = Visibility.PUBLIC,
  reply_to = "",
): Promise<string> {
  const { drop } = await sandbox.world.posts.createDrop({ user_id, visibility, reply_to, body: `Hello ${++posted}` });
  return drop?.drop_id as string;
}

export const readHome = ({ sandbox, reader }: Stage, limit = 0) =>
  sandbox.world.timelines.getHomeTimeline({ user_id: reader, limit });

/** The demo looks at these fields of answers. */
interface Answered {
  readonly analysis_id: string;
  readonly status: string;
  readonly status_url: string;
  readonly results?: { readonly posts: number; readonly flow: { readonly posts_per_day: number } };
  readonly total: number;
  readonly transactions: readonly object[];
  readonly notifications: readonly { readonly id: string }[];
  /** Of notifications that are unread. */
  readonly count: number;
}

/** Asks the gateway as the reader. */
export async function request({ sandbox, reader }: Stage, path: string, init: RequestInit = {}) {
  const headers = new Headers(init.headers);
  headers.set("authorization", `Bearer ${await sandbox.issueToken(reader)}`);
  const response = await fetch(sandbox.httpUrl + path, { ...init, headers });
  return { status: response.status, body: (await response.json()) as Answered };
}

export async function countHolding({ redis }: Stage, drop: string): Promise<number> {
  let cursor = "0";
  let count = 0;
  do {
    const [next, keys] = await redis.scan(cursor, "MATCH", HOMES, "COUNT", 1_000);
    const scores = await Promise.all(keys.map((key) => redis.zscore(key, drop)));
    count += scores.filter((score) => score != null).length;
    cursor = next;
  } while (cursor !== "0");
  return count;
}

export function expect(fact: boolean, otherwise: string): asserts fact {
  if (!fact) throw new Error(otherwise);
}

/** A busy machine may need a minute for what takes an idle one some milliseconds. */
const PATIENCE_MS = 60_000;

/** Asks until there is an answer other than false. After a minute it rejects, and names `what` it waited for. */
export async function eventually<T>(what: string, ask: () => Promise<T | undefined | false>): Promise<T> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (Date.now() > deadline) throw new Error(`waited ${PATIENCE_MS} ms in vain for ${what}`);
    await pause(10);
  }
}

interface Stream {
  readonly events: readonly EventSourceMessage[];
  /** Returns the id to resume from. */
  lastId(): string;
  waitFor(event: string, drop: string): Promise<EventSourceMessage>;
  close(): void;
}

interface StreamToOpen {
  readonly reader: string;
  /** Default: the home. */
  readonly timeline?: string;
  /** The stream resumes after this id. */
  readonly lastId?: string;
}

/** Opens a stream of the reader. */
export async function openStream(
  sandbox: Sandbox,
  { reader, timeline = "home", lastId }: StreamToOpen,
): Promise<Stream> {
  const authorization = `Bearer ${await sandbox.issueToken(reader)}`;
  const abort = new AbortController();
  const response = await fetch(`${sandbox.httpUrl}/events/timeline/${timeline}`, {
    signal: abort.signal,
    headers: { authorization, ...(lastId === undefined ? {} : { "last-event-id": lastId }) },
  });
  if (!response.ok || !response.body) throw new Error(`the stream answers ${response.status}`);
  const events: EventSourceMessage[] = [];
  let position = lastId ?? "";
  const parser = createParser({ onEvent: (event) => events.push(event) });
  const read = async (body: AsyncIterable<Uint8Array>): Promise<void> => {
    const decoder = new TextDecoder();
    for await (const bytes of body) {
      const text = decoder.decode(bytes, { stream: true });
      parser.feed(text);
      // Heartbeats carry an id and no event, which the parser passes over.
      position = [...text.matchAll(/^id: ?(\S+)$/gm)].at(-1)?.[1] ?? position;
    }
  };
  void read(response.body).catch(() => undefined);
  return {
    events,
    lastId: () => position,
    waitFor: (event, drop) =>
      eventually(`${event} of ${drop} on the stream`, async () =>
        events.find((candidate) => candidate.event === event && candidate.data.includes(JSON.stringify(drop))),
      ),
    close: () => abort.abort(),
  };
}
