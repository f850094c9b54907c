import type { NatsConnection } from "nats";
import { type Byline, belongsHome, entryOfDrop } from "../../contracts/timelines.js";
import type { Drop } from "../../gen/avion/posts.js";
import { dateOfId } from "../../kernel/ids.js";
import type { Upstreams } from "../../platform/grpc/upstreams.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Erased } from "../../records/erasures.js";
import type { Fences } from "../../records/fences.js";
import { currentOf, isPushed, type PulledAuthors } from "../../records/pulled.js";
import { createReadWaiting } from "../../records/waiting.redis.js";
import { createReadEntry } from "../audit/auditor.redis.js";
import type { PublicationDeps } from "../audit/publications.js";
import { EventLog } from "../log.nats.js";
import { type Logged, untilNow } from "../reconcile/reconcile.js";
import type { Unapplied } from "../redis-loss/loss-detector.js";
import type { HeldDrop } from "../restored/judge.js";
import { UpstreamView } from "../upstreams.grpc.js";
import { type Explanation, explain, type Facts } from "./explain.js";

export interface Asked {
  readonly user: string;
  readonly drop: string;
  /** It is needed if the log no longer has an event of the drop that names its author. */
  readonly author?: string | undefined;
}

interface Handles {
  readonly scripts: Scripts;
  readonly nats: NatsConnection;
  readonly upstreams: (caller: "operator") => Upstreams;
  readonly fences: Fences;
  readonly erased: Erased;
  readonly authorStates: PulledAuthors;
}

/** Returns a function that tells why a home has a drop, or lacks it. */
export function openExplain(
  { scripts, nats, upstreams, fences, erased, authorStates }: Handles,
  hides: PublicationDeps["hides"],
) {
  const { readLogged, readUnapplied } = new EventLog(nats, createReadWaiting(scripts));
  const { findDrop, follows } = new UpstreamView(upstreams("operator"));
  const deps = {
    ...{ hides, readUnapplied, findDrop, follows },
    readEntry: createReadEntry(scripts, authorStates),
    tombstonedAmong: fences.tombstonedAmong,
    erasedAmong: erased.among,
    isPulled: async (author: string) => !isPushed((await currentOf(authorStates)).get(author)?.state),
    readDropEvents: (since: number) => readLogged(untilNow(since), "drops.*"),
  };
  return async (asked: Asked): Promise<Facts & Explanation> => {
    const facts = await readFacts(deps, asked);
    return { ...explain(facts), ...facts };
  };
}

interface ExplainDeps extends Pick<PublicationDeps, "readEntry" | "hides" | "tombstonedAmong"> {
  /** Reads the events of drops that were admitted since then, in ms since the epoch. */
  readonly readDropEvents: (since: number) => AsyncIterable<Logged>;
  readonly readUnapplied: () => Promise<Unapplied>;
  readonly findDrop: (held: HeldDrop) => Promise<Drop | undefined>;
  readonly follows: (follower: string, following: string) => Promise<boolean>;
  readonly erasedAmong: (users: readonly string[]) => Promise<ReadonlySet<string>>;
  readonly isPulled: (author: string) => Promise<boolean>;
}

/** Reads all that decides whether a home has a drop. */
async function readFacts(deps: ExplainDeps, asked: Asked): Promise<Facts> {
  const { user, drop } = asked;
  const logged = await eventsOf(deps, drop);
  const created = logged.map(({ event }) => event).find(({ name }) => name !== "drop_deleted");
  const payload = created && "created_at" in created.payload ? created.payload : undefined;
  const author = asked.author ?? payload?.user_id;
  const createdAt = payload?.created_at ?? dateOfId(drop);
  const listed = await findListed(deps, { drop, author, createdAt });
  const people = author === undefined ? [user] : [user, author];
  const unapplied = await deps.readUnapplied();
  const { score, floor } = await deps.readEntry({ kind: "home", name: user }, drop, author ?? "");
  return {
    ...{ author, createdAt, score, floor },
    admitted: logged.map(({ event: { name: event }, seq, time }) => ({ event, seq, time })),
    isApplied: logged.every(({ seq }) => seq <= unapplied.acked) && unapplied.waiting.every((one) => one.drop !== drop),
    isListed: listed && listed.drop !== undefined,
    isTombstoned: (await deps.tombstonedAmong([drop])).size > 0,
    isErased: (await deps.erasedAmong(people)).size > 0,
    isForUser: listed?.drop && belongsHome(listed.drop, user),
    follows: author === undefined ? undefined : author === user || (await deps.follows(user, author)),
    isHidden: await isHidden(deps, user, bylineOf(author, listed?.drop)),
    isPulled: author !== undefined && (await deps.isPulled(author)),
  };
}

async function eventsOf({ readDropEvents }: ExplainDeps, drop: string): Promise<Logged[]> {
  const found: Logged[] = [];
  for await (const logged of readDropEvents(dateOfId(drop) ?? 0)) {
    const { payload } = logged.event;
    if ("drop_id" in payload && payload.drop_id === drop) found.push(logged);
  }
  return found;
}

/** Resolves to undefined if the author or the time of the drop is not known. */
async function findListed(
  { findDrop }: ExplainDeps,
  { drop, author, createdAt }: Partial<HeldDrop> & { readonly drop: string },
): Promise<{ readonly drop: Drop | undefined } | undefined> {
  if (author === undefined || createdAt === undefined) return undefined;
  return { drop: await findDrop({ drop, author, createdAt }) };
}

function bylineOf(author: string | undefined, listed: Drop | undefined): Byline | undefined {
  if (listed) return entryOfDrop(listed).by;
  return author === undefined ? undefined : { author };
}

async function isHidden({ hides }: ExplainDeps, user: string, by: Byline | undefined): Promise<boolean | undefined> {
  if (by === undefined) return undefined;
  return by.author !== user && (await hides(user, by));
}
