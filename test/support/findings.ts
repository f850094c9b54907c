import { dropOf, type LawDeps } from "./conservation.js";
import { eventually } from "./eventually.js";
import { PEOPLE, steadyFollowings } from "./history-cast.js";
import { expectedAfter, idsOf, missableDeletions } from "./oracle.js";
import { standingsAfter } from "./oracle-people.js";
import { downIds, pagesDown, type Reader } from "./reader.js";
import { REPOST_WINDOW } from "./reposts-once.js";
import type { EventStream } from "./sse.js";
import type { Stored } from "./streams.js";
import type { TimelineEvent } from "./timeline-events.js";
import { type Entry, heldBy, homeKey } from "./timeline-keys.js";

/** Each list names the differences of one kind. */
export type Findings = {
  /** These are in no timeline, and no dead letter says why. */
  readonly lost: string[];
  /** These are twice on a page, on an event stream, or in the DLQ. */
  readonly duplicated: string[];
  /** These were deleted, and are there again. */
  readonly resurrected: string[];
  /** These entries must not be there; these dead letters are of valid events. */
  readonly unexpected: string[];
  /** A completion or a notification says that these are there, and they are not. */
  readonly unfulfilled: string[];
};

export type RunResult = LawDeps & {
  readonly events: readonly TimelineEvent[];
  /** Each body must end as one dead letter. */
  readonly invalidMessages: readonly string[];
  /** The keys are the users whose event streams are open. */
  readonly eventStreams: ReadonlyMap<string, EventStream>;
  /** So many events were published before the event streams were opened. */
  readonly eventsBeforeStreams: number;
  /** Numbers of events after each of which all so far were applied. */
  readonly settledAt: readonly number[];
  /** Users whose homes Redis has lost: nobody knows then which drops they had. */
  readonly lostHomes: ReadonlySet<string>;
  readonly reads: Reader;
};

/** Compares everything that can be seen from outside with what the history says must be there. */
export async function findingsOf(result: RunResult): Promise<Findings> {
  const findings: Findings = { lost: [], duplicated: [], resurrected: [], unexpected: [], unfulfilled: [] };
  const deadLetters = await result.streams.all("DLQ");
  const deadLettered = new Set(deadLetters.flatMap((deadLetter) => dropOf(deadLetter) ?? []));
  const timelines = expectedTimelines(result.events);
  await checkTimelines(result, timelines, deadLettered, findings);
  checkDeadLetters(result, deadLetters, findings);
  await checkPages(result, deadLettered, findings);
  checkStreams(result, deadLettered, findings);
  await checkCompletions(result, deadLettered, findings);
  return findings;
}

function expectedTimelines(events: readonly TimelineEvent[]): ReadonlyMap<string, readonly Entry[]> {
  const expected = expectedAfter(events);
  return new Map([
    ["timeline:local", expected.local],
    ["timeline:global", expected.global],
    ...PEOPLE.map((user) => [homeKey(user), expected.home(user)] as const),
  ]);
}

async function checkTimelines(
  result: RunResult,
  timelines: ReadonlyMap<string, readonly Entry[]>,
  deadLettered: ReadonlySet<string>,
  { lost, resurrected, unexpected }: Findings,
): Promise<void> {
  const { redis, events } = result;
  const deleted = deletedIn(events);
  for (const [key, { entries }] of await heldBy(redis, [...timelines.keys()])) {
    const wanted = new Map(timelines.get(key));
    const held = new Map(entries);
    for (const [drop, score] of wanted) {
      if (!held.has(drop) && !deadLettered.has(drop)) lost.push(`${drop} in ${key}`);
      if (held.has(drop) && held.get(drop) !== score)
        unexpected.push(`${drop} in ${key} at ${held.get(drop)}, not ${score}`);
    }
    for (const drop of held.keys()) {
      if (wanted.has(drop)) continue;
      if (!deleted.has(drop)) unexpected.push(`${drop} in ${key}`);
      else if (!(await removedByReading(result, key, drop))) resurrected.push(`${drop} in ${key}`);
    }
  }
}

/** A deletion that names no author cannot find every home. A read must hide and remove the drop there. */
async function removedByReading({ redis, reads, events }: RunResult, key: string, drop: string): Promise<boolean> {
  const user = PEOPLE.find((person) => homeKey(person) === key);
  if (user === undefined) return false;
  if (!missableDeletions(events).has(drop)) return false;
  const shown = downIds(await pagesDown((query) => reads.home(user, query), { limit: 100 }));
  const out = async () => (await redis.zscore(key, drop)) === null;
  return (
    !shown.includes(drop) &&
    (await eventually(out, "it is taken out", 2_000).then(
      () => true,
      () => false,
    ))
  );
}

function checkDeadLetters(
  { invalidMessages }: RunResult,
  deadLetters: readonly Stored[],
  { lost, duplicated, unexpected }: Findings,
): void {
  const bodies = deadLetters.map(({ body }) => String(body));
  for (const body of invalidMessages) if (!bodies.includes(body)) lost.push(`the deadLetter of ${body}`);
  for (const deadLetter of deadLetters) {
    const { subject, body, headers } = deadLetter;
    const why = `${headers["Dlq-Error"]}, ${headers["Dlq-Deliveries"]} deliveries`;
    if (!invalidMessages.includes(String(body))) unexpected.push(`deadLetter ${subject} (${why}): ${String(body)}`);
  }
  const origins = deadLetters.map(({ headers }) => `${headers["Dlq-Stream"]} ${headers["Dlq-Stream-Seq"]}`);
  duplicated.push(...twice(origins).map((origin) => `deadLetter of ${origin}`));
}

/** Returns what pages lack, and what they must not show. */
export async function wrongOnPages(result: RunResult): Promise<string[]> {
  const findings: Findings = { lost: [], duplicated: [], resurrected: [], unexpected: [], unfulfilled: [] };
  await checkPages(result, new Set(), findings);
  return [...findings.lost, ...findings.unexpected];
}

async function checkPages(
  { reads, events }: RunResult,
  deadLettered: ReadonlySet<string>,
  { lost, duplicated, unexpected }: Findings,
): Promise<void> {
  const expected = expectedAfter(events);
  const compare = (of: string, shown: readonly string[], wanted: readonly string[]): void => {
    const missing = wanted.filter((item) => !shown.includes(item) && !deadLettered.has(item));
    const more = shown.filter((item) => !wanted.includes(item));
    duplicated.push(...twice(shown).map((item) => `${item} on pages of ${of}`));
    lost.push(...missing.map((item) => `${item} on pages of ${of}`));
    unexpected.push(...more.map((item) => `${item} on pages of ${of}`));
    if (missing.length + more.length === 0 && deadLettered.size === 0 && shown.join() !== wanted.join())
      unexpected.push(`the order of ${shown.join()} on pages of ${of}`);
  };
  for (const user of PEOPLE) {
    const pages = await pagesDown((query) => reads.home(user, query), { limit: REPOST_WINDOW });
    const items = pages.flatMap((page) => page.items);
    compare(
      user,
      items.map(({ drop_id, reposted_by }) => nameOf(drop_id, reposted_by)),
      expected.homePage(user).map(({ drop, repostedBy }) => nameOf(drop, repostedBy)),
    );
  }
  compare("local", downIds(await pagesDown(reads.local, { limit: 100 })), expected.localPage);
  compare("global", downIds(await pagesDown(reads.global, { limit: 100 })), expected.globalPage);
}

const nameOf = (drop: string, repostedBy: readonly string[]): string =>
  repostedBy.length === 0 ? drop : `${drop} reposted by ${repostedBy.join(" and ")}`;

/**
 * Compares what streams sent. The gateway leaves out what it has sent before, and by its own copy of the standings the drops of
 * the suspended. So a fan-out that tells an edit twice, or of the suspended, has no findings here: tests of the fan-out and
 * of the gateway show either alone.
 */
function checkStreams(result: RunResult, deadLettered: ReadonlySet<string>, findings: Findings): void {
  const { eventStreams, events } = result;
  const expected = expectedAfter(events);
  const deleted = deletedIn(events);
  for (const [user, stream] of eventStreams) {
    const drops = stream.drops();
    const held = new Set(idsOf(expected.home(user)));
    findings.duplicated.push(...twice(drops).map((drop) => `${drop} on the stream of ${user}`));
    for (const drop of drops) {
      if (deleted.has(drop) || held.has(drop)) continue;
      if (authorOf(events, drop) === undefined) findings.unexpected.push(`${drop} on the stream of ${user}`);
      else findings.unfulfilled.push(`${drop} was sent to ${user}`);
    }
    checkEdits(user, stream, { ...result, held, deleted }, findings);
  }
  findings.lost.push(...missedOnStreams(result, deadLettered));
}

/** A stream tells of each edit of a drop in the home once, after it has told of the drop and before its deletion. */
function checkEdits(
  user: string,
  { events: sent }: EventStream,
  { held, deleted, events, eventsBeforeStreams }: RunResult & Record<"held" | "deleted", ReadonlySet<string>>,
  { duplicated, unexpected }: Findings,
): void {
  const edits = sent.filter(({ event }) => event === "drop_edited").map(({ data }) => editOf(data));
  duplicated.push(...twice(edits).map((edit) => `${edit} on the stream of ${user}`));
  const known = new Set(events.slice(0, eventsBeforeStreams).flatMap(dropPublished));
  const gone = new Set<unknown>();
  let isReset = false;
  for (const { event, data } of sent) {
    const drop = String(data["drop_id"]);
    if (event === "reset") isReset = true;
    if (event === "new_drop") known.add(drop);
    if (event === "drop_deleted") gone.add(drop);
    if (event !== "drop_edited") continue;
    if (!held.has(drop) && !deleted.has(drop)) unexpected.push(`the edit of ${drop} on the stream of ${user}`);
    if (gone.has(drop)) unexpected.push(`the edit of ${drop} on the stream of ${user} after its deletion`);
    if (!known.has(drop) && !isReset) unexpected.push(`the edit of ${drop} on the stream of ${user} before the drop`);
  }
}

const editOf = ({ drop_id, revision }: Readonly<Record<string, unknown>>): string =>
  `edit ${String(revision)} of ${String(drop_id)}`;

const dropPublished = ({ channel, payload }: TimelineEvent): string[] =>
  channel === "drop_created" || channel === "ap_drop_received" ? [payload.drop_id] : [];

/** Returns what an event stream should have sent. After a reset it may lack anything: the client knows. */
export function missedOnStreams(
  { eventStreams, events, eventsBeforeStreams, settledAt, lostHomes }: RunResult,
  deadLettered: ReadonlySet<string>,
): string[] {
  const expected = expectedAfter(events);
  const [deleted, suspended] = [deletedIn(events), everSuspended(events)];
  return [...eventStreams].flatMap(([user, stream]) => {
    if (stream.events.some(({ event }) => event === "reset")) return [];
    const held = new Set(idsOf(expected.home(user)).filter((drop) => !deadLettered.has(drop)));
    const sent = new Set(stream.drops());
    const steady = [user, ...steadyFollowings(user)];
    const dueAmong = (some: readonly TimelineEvent[]): string[] =>
      some.flatMap(({ channel, payload }) => {
        if (channel !== "drop_created" || !steady.includes(payload.user_id)) return [];
        const { drop_id, user_id, repost_author = "", reply_to_author = "" } = payload;
        return [user_id, repost_author, reply_to_author].some((other) => suspended.has(other)) ? [] : [drop_id];
      });
    const missed = dueAmong(events.slice(eventsBeforeStreams)).filter((drop) => held.has(drop) && !sent.has(drop));
    const told = new Set(stream.events.filter(({ event }) => event === "drop_edited").map(({ data }) => editOf(data)));
    const due = new Set(dueAmong(events));
    const unedited = editsOfWritten(events, settledAt).filter(
      (edit) => due.has(edit.drop_id) && held.has(edit.drop_id) && !deleted.has(edit.drop_id),
    );
    const untold = lostHomes.has(user) ? [] : unedited.map(editOf).filter((edit) => !told.has(edit));
    return [...missed, ...untold].map((what) => `${what} on the stream of ${user}`);
  });
}

/** Edits of drops that all homes had before: nobody need be told of an edit that may come before its drop. */
function editsOfWritten(events: readonly TimelineEvent[], settledAt: readonly number[]) {
  const writtenBefore = (place: number): Set<string> =>
    new Set(events.slice(0, settledAt.findLast((count) => count <= place) ?? 0).flatMap(dropPublished));
  return events.flatMap(({ channel, payload }, place) =>
    channel === "drop_edited" && writtenBefore(place).has(payload.drop_id) ? [payload] : [],
  );
}

/** Users who were suspended at some time. Streams leave out their drops meanwhile, and nobody knows from when to when. */
function everSuspended(events: readonly TimelineEvent[]): { has(user: string): boolean } {
  const once = events.filter(
    ({ channel, payload }) => channel === "standing_changed" && payload.standing === "suspended",
  );
  const of = standingsAfter(once.map(neverEnding), 0);
  return { has: (user) => of(user) === "suspended" };
}

const neverEnding = (event: TimelineEvent): TimelineEvent =>
  event.channel === "standing_changed" ? { ...event, payload: { ...event.payload, until: 0 } } : event;

/** Checks that a completed drop is in the author's home. */
async function checkCompletions(
  { redis, streams, events }: RunResult,
  deadLettered: ReadonlySet<string>,
  { unfulfilled }: Findings,
): Promise<void> {
  const deleted = deletedIn(events);
  const landed = (await streams.all("COMPLETIONS")).map(({ body }) => JSON.parse(String(body)) as Completion);
  const homes = await heldBy(redis, [...new Set(landed.map(({ user_id }) => homeKey(user_id)))]);
  for (const { event, drop_id, user_id } of landed) {
    if (event !== "drop_created" || deleted.has(drop_id) || deadLettered.has(drop_id)) continue;
    const entries = homes.get(homeKey(user_id))?.entries ?? [];
    if (!entries.some(([drop]) => drop === drop_id)) unfulfilled.push(`${drop_id} completed, not with ${user_id}`);
  }
}

type Completion = { readonly event: string; readonly drop_id: string; readonly user_id: string };

function deletedIn(events: readonly TimelineEvent[]): Set<string> {
  return new Set(events.flatMap(({ channel, payload }) => (channel === "drop_deleted" ? [payload.drop_id] : [])));
}

function authorOf(events: readonly TimelineEvent[], drop: string): string | undefined {
  for (const { channel, payload } of events) {
    if (channel !== "drop_created" && channel !== "ap_drop_received") continue;
    if (payload.drop_id === drop) return payload.user_id;
  }
  return undefined;
}

function twice(items: readonly string[]): string[] {
  return [...new Set(items.filter((item, place) => items.indexOf(item) !== place))];
}
