import { dropOf, type LawDeps } from "./conservation.js";
import { eventually } from "./eventually.js";
import { PEOPLE, steadyFollowings } from "./history.js";
import { expectedAfter, idsOf, missableDeletions } from "./oracle.js";
import { downIds, pagesDown, type Reader } from "./reader.js";
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

async function checkPages(
  { reads, events }: RunResult,
  deadLettered: ReadonlySet<string>,
  { lost, duplicated, unexpected }: Findings,
): Promise<void> {
  const expected = expectedAfter(events);
  for (const user of [PEOPLE[0], PEOPLE[2], PEOPLE[7]] as string[]) {
    const ids = downIds(await pagesDown((query) => reads.home(user, query), { limit: 40 }));
    const wanted = idsOf(expected.home(user));
    const missing = wanted.filter((drop) => !ids.includes(drop) && !deadLettered.has(drop));
    duplicated.push(...twice(ids).map((drop) => `${drop} on pages of ${user}`));
    lost.push(...missing.map((drop) => `${drop} on pages of ${user}`));
    unexpected.push(...ids.filter((drop) => !wanted.includes(drop)).map((drop) => `${drop} on pages of ${user}`));
  }
}

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
  }
  findings.lost.push(...missedOnStreams(result, deadLettered));
}

/** Returns drops that an event stream should have sent. After a reset it may lack any: the client knows. */
export function missedOnStreams(
  { eventStreams, events, eventsBeforeStreams }: RunResult,
  deadLettered: ReadonlySet<string>,
): string[] {
  const expected = expectedAfter(events);
  return [...eventStreams].flatMap(([user, stream]) => {
    if (stream.events.some(({ event }) => event === "reset")) return [];
    const held = new Set(idsOf(expected.home(user)));
    const sent = new Set(stream.drops());
    const steady = [user, ...steadyFollowings(user)];
    const due = events.slice(eventsBeforeStreams).flatMap(({ channel, payload }) => {
      return channel === "drop_created" && steady.includes(payload.user_id) ? [payload.drop_id] : [];
    });
    const missed = due.filter((drop) => held.has(drop) && !deadLettered.has(drop) && !sent.has(drop));
    return missed.map((drop) => `${drop} on the stream of ${user}`);
  });
}

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
