import type { Redis } from "ioredis";
import type { NatsConnection } from "nats";
import { steadyFollowers, steadyFollowings } from "./history-cast.js";
import type { Stored, Streams } from "./streams.js";
import type { TimelineEvent } from "./timeline-events.js";
import { type Held, heldBy, homeKey } from "./timeline-keys.js";

/** Records every acknowledgement that reaches the server: an acked message is pending no more. */
export class AckWatcher {
  readonly #acked = new Map<string, Set<number>>();

  constructor(private readonly connection: NatsConnection) {
    connection.subscribe("$JS.ACK.>", {
      callback: (error, message) => {
        const body = Buffer.from(message.data).toString();
        if (!error && ["", "+ACK", "+TERM"].includes(body)) this.#record(message.subject.split("."));
      },
    });
  }

  /** Returns the sequences of a stream that a consumer has acknowledged by now. */
  async acked(stream: string, consumer: string): Promise<ReadonlySet<number>> {
    await this.connection.flush();
    return new Set(this.#acked.get(`${stream}.${consumer}`));
  }

  /** The subject is `$JS.ACK.<stream>.<consumer>.<deliveries>.<seq>...`; newer servers put domain and account first. */
  #record(tokens: readonly string[]): void {
    const [stream, consumer, , seq] = tokens.slice(tokens.length >= 11 ? 4 : 2);
    const known = this.#acked.get(`${stream}.${consumer}`) ?? new Set();
    this.#acked.set(`${stream}.${consumer}`, known.add(Number(seq)));
  }
}

/** The law is checked against these servers. */
export type LawDeps = {
  readonly streams: Streams;
  readonly redis: Redis;
  readonly ackWatcher: AckWatcher;
};

type Publication = {
  readonly drop_id: string;
  readonly user_id?: string;
  readonly visibility?: string;
  readonly recipients?: readonly string[];
  readonly repost_of?: string;
  readonly reply_to_author?: string;
};

/** The timelines that must have a drop; only those with a floor, if the drop is a reply that a home must judge. */
type Due = { readonly keys: readonly string[]; readonly drop: string | undefined; readonly isJudged: boolean };

/**
 * The conservation law holds at any instant: a publication whose event is acked and that nobody deletes is in the
 * timelines of all who follow its author from beginning to end, or a job still carries it, or it is a dead letter.
 * Returns what breaks it.
 */
export async function brokenLaws(deps: LawDeps, events: readonly TimelineEvent[]): Promise<string[]> {
  const acked = await deps.ackWatcher.acked("DROPS", "planner");
  const log = (await deps.streams.all("DROPS")).filter(({ seq }) => acked.has(seq));
  // Jobs are read before timelines: a job that is gone by then has been written.
  const queued = new Set((await deps.streams.all("FANOUT")).map(dropOf));
  const deleted = new Set(
    events.flatMap(({ channel, payload }) => (channel === "drop_deleted" ? [payload.drop_id] : [])),
  );
  const published = log.filter(({ subject }) => subject === "drops.created" || subject === "drops.ap_received");
  const due = published
    .map((message): Due => ({ ...keysOf(message), drop: dropOf(message) }))
    .filter(({ drop }) => drop !== undefined && !deleted.has(drop) && !queued.has(drop));
  const held = await heldBy(deps.redis, [...new Set(due.flatMap(({ keys }) => keys))]);
  const deadLetters = new Set((await deps.streams.all("DLQ")).map(dropOf));
  return due
    .filter(({ drop }) => !deadLetters.has(drop))
    .flatMap(({ drop, keys, isJudged }) =>
      keys
        .filter((key) => !holds(held.get(key), drop) && !(isJudged && !isComplete(held.get(key))))
        .map((key) => `${drop} is acked and not in ${key}`),
    );
}

/** A home without a floor judges replies when it is rebuilt. */
const isComplete = (held: Held | undefined): boolean => held?.floor !== undefined && held.floor >= 0;

function holds(held: Held | undefined, drop: string | undefined): boolean {
  return held?.entries.some(([id]) => id === drop) ?? false;
}

function keysOf(message: Stored): Pick<Due, "keys" | "isJudged"> {
  const drop = bodyOf(message);
  if (drop === undefined) return { keys: [], isJudged: false };
  const { user_id, visibility = "public", recipients = [], repost_of = "" } = drop;
  const remote = message.subject === "drops.ap_received";
  const parent = answered(drop);
  const shared = remote ? ["timeline:global"] : ["timeline:local", "timeline:global"];
  const followers = user_id === undefined ? [] : steadyFollowers(user_id);
  const may = followers
    .filter((user) => visibility !== "direct" || recipients.includes(user))
    .filter((user) => parent === undefined || parent === user || steadyFollowings(user).includes(parent));
  const homes = remote || user_id === undefined ? may : [user_id, ...may];
  const isShared = visibility === "public" && repost_of === "" && parent === undefined;
  return { keys: [...(isShared ? shared : []), ...homes.map(homeKey)], isJudged: parent !== undefined };
}

/** The author of the parent of a reply to somebody else. */
function answered({ user_id, visibility, repost_of = "", reply_to_author = "" }: Publication): string | undefined {
  if (visibility === "direct" || repost_of !== "") return undefined;
  return ["", user_id].includes(reply_to_author) ? undefined : reply_to_author;
}

/** Returns the drop that a message is about, or undefined for a message that is no event. */
export function dropOf(message: Stored): string | undefined {
  return bodyOf(message)?.drop_id;
}

function bodyOf({ body }: Stored): Publication | undefined {
  try {
    return JSON.parse(String(body)) as Publication;
  } catch {
    return undefined;
  }
}
