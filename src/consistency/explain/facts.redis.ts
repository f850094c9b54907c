import type { NatsConnection } from "nats";
import type { ExplainRequest } from "../../contracts/explain.js";
import type { HeldDrop } from "../../contracts/timelines.js";
import { belongsHome, entryOfDrop } from "../../contracts/timelines.js";
import type { Drop } from "../../gen/avion/posts.js";
import { dateOfId } from "../../kernel/ids.js";
import { sharedNow } from "../../kernel/time.js";
import { currentOf, isPushed, type State } from "../../state/index.js";
import type { Upstreams } from "../../upstreams/upstreams.grpc.js";
import { isOpen, untilApplied } from "../audit/audit.js";
import type { PublicationDeps } from "../audit/publications.js";
import { EventLog } from "../log.nats.js";
import { type Logged, untilNow } from "../reconcile/reconcile.js";
import type { Unapplied } from "../redis-loss/loss-detector.js";
import { UpstreamView } from "../upstreams.grpc.js";
import { type Explanation, explain, type Facts, isWrong } from "./explain.js";

export type Explained = Pick<ExplainRequest, "user" | "drop"> & Explanation & Facts;

export type Explain = (asked: ExplainRequest, stopping?: AbortSignal) => Promise<Explained>;

interface Handles {
  readonly state: State;
  readonly nats: NatsConnection;
  readonly upstreams: (caller: "operator") => Upstreams;
}

/** Returns a function that tells why a home has a drop, or lacks it. */
export function openExplain({ state, nats, upstreams }: Handles, hides: PublicationDeps["hides"]): Explain {
  const { fences, erased, authorStates, readEntry, waiting } = state;
  const { readLogged, readUnapplied } = new EventLog(nats, waiting.read);
  const { findDrop, follows, isKnown } = new UpstreamView(upstreams("operator"));
  const deps = {
    hides,
    readUnapplied,
    findDrop,
    follows,
    isKnown,
    readEntry,
    tombstonedAmong: fences.tombstonedAmong,
    retentionStart: fences.retentionStart,
    erasedAmong: erased.among,
    isPulled: async (author: string) => !isPushed((await currentOf(authorStates)).get(author)?.state),
    readDropEvents: createReadDropEvents(readLogged),
  };
  const look = async (asked: ExplainRequest, since: number): Promise<Explained> => {
    const facts = await readFacts(deps, asked, since);
    return { user: asked.user, drop: asked.drop, ...explain(facts), ...facts };
  };
  return async (asked, stopping) => {
    const since = sharedNow();
    const first = await look(asked, since);
    if (!isWrong(first) && first.verdict !== "under-way") return first;
    // A follow, a block or a deletion may have been under way.
    await untilApplied(readUnapplied, since, stopping);
    return look(asked, since);
  };
}

interface ExplainDeps extends Pick<PublicationDeps, "readEntry" | "hides" | "tombstonedAmong"> {
  readonly readDropEvents: ReadDropEvents;
  readonly readUnapplied: () => Promise<Unapplied>;
  readonly findDrop: (drop: HeldDrop) => Promise<Drop | undefined>;
  readonly follows: (follower: string, following: string) => Promise<boolean>;
  readonly isKnown: (user: string) => Promise<boolean>;
  readonly erasedAmong: (users: readonly string[]) => Promise<ReadonlySet<string>>;
  readonly isPulled: (author: string) => Promise<boolean>;
  readonly retentionStart: () => number;
}

/**
 * Reads all facts that decide if a home has a drop. Events admitted before `since`, ms since the epoch, count as due.
 */
async function readFacts(deps: ExplainDeps, asked: ExplainRequest, since: number): Promise<Facts> {
  const { user, drop } = asked;
  const logged = await deps.readDropEvents(drop);
  const payload = logged.map(({ event }) => event.payload).find((each) => "drop_id" in each && "created_at" in each);
  const author = asked.author ?? payload?.user_id;
  const home = { kind: "home", name: user } as const;
  // With no author, the entry is read without a merged timeline.
  const inHome = await deps.readEntry(home, drop, "");
  const { score, floor } = author === undefined ? inHome : await deps.readEntry(home, drop, author);
  const createdAt = payload?.created_at ?? dateOfId(drop) ?? score;
  const erased = await deps.erasedAmong(author === undefined ? [user] : [user, author]);
  const isErased = erased.size > 0;
  // A home that has the drop belongs to a known user.
  const doubtful = score === undefined ? [user, ...(asked.author === undefined ? [] : [asked.author])] : [];
  const areKnown = await Promise.all(doubtful.map(async (id) => erased.has(id) || (await deps.isKnown(id))));
  const unapplied = await deps.readUnapplied();
  return {
    author,
    createdAt,
    score,
    floor,
    isErased,
    unknownUsers: doubtful.filter((_, index) => !areKnown[index]),
    admitted: admissionsOf(logged),
    isApplied: unapplied.start >= since && !isOpen(unapplied.waiting, user, drop),
    isTombstoned: (await deps.tombstonedAmong([drop])).size > 0,
    isPastRetention: createdAt !== undefined && createdAt < deps.retentionStart(),
    isPulled: author !== undefined && (await deps.isPulled(author)),
    isMerged: inHome.score === undefined && score !== undefined,
    ...(await relationsOf(deps, isErased ? undefined : author, { user, drop, createdAt })),
  };
}

type Relations = Pick<Facts, "isListed" | "isForUser" | "follows" | "isHidden" | "isReplyToOthers">;

const UNKNOWN_RELATIONS: Relations = {
  isListed: undefined,
  isForUser: undefined,
  follows: undefined,
  isHidden: undefined,
  isReplyToOthers: undefined,
};

/** Returns no facts without an author. The upstreams do not know erased users. */
async function relationsOf(
  deps: ExplainDeps,
  author: string | undefined,
  { user, drop, createdAt }: { readonly user: string; readonly drop: string; readonly createdAt: number | undefined },
): Promise<Relations> {
  if (author === undefined || createdAt === undefined) return UNKNOWN_RELATIONS;
  const listed = await deps.findDrop({ drop, author, createdAt });
  const isOwn = author === user;
  const hidden = isOwn ? undefined : await deps.hides(user, listed ? entryOfDrop(listed).by : { author });
  return {
    isListed: listed !== undefined,
    isForUser: listed && belongsHome(listed, user),
    follows: isOwn || (await deps.follows(user, author)),
    isHidden: hidden === "relation",
    isReplyToOthers: hidden === "reply",
  };
}

type ReadDropEvents = (drop: string) => Promise<Logged[]>;

/** Reads the events of a drop in the log, the oldest first. */
export const createReadDropEvents =
  (readLogged: EventLog["readLogged"]): ReadDropEvents =>
  async (drop) => {
    const events: Logged[] = [];
    for await (const logged of readLogged(untilNow(dateOfId(drop) ?? 0), "drops.*")) {
      const { payload } = logged.event;
      if ("drop_id" in payload && payload.drop_id === drop) events.push(logged);
    }
    return events;
  };

export const admissionsOf = (logged: readonly Logged[]): Facts["admitted"] =>
  logged.map(({ event: { name: event }, seq, time }) => ({ event, seq, time }));
