import { dropOf, type LawDeps } from "./conservation.js";
import { eventually } from "./eventually.js";
import { PEOPLE, steadyFollowings } from "./history.js";
import { expectedAfter, idsOf, missableDeletions } from "./oracle.js";
import { downIds, pagesDown, type Reader } from "./reader.js";
import type { EventStream } from "./sse.js";
import type { Stored } from "./streams.js";
import type { TimelineEvent } from "./timeline-events.js";
import { type Entry, heldBy, homeKey } from "./timeline-keys.js";

/** Faults found in the end, by name. */
export type Findings = {
  /** In no timeline, and no letter says why. */
  readonly lost: string[];
  /** Twice on a page, on a stream, or in the DLQ. */
  readonly duplicated: string[];
  /** Deleted, and there again. */
  readonly resurrected: string[];
  /** Entries that must not be there, and letters without a reason. */
  readonly unexpected: string[];
  /** Said to be there (a completion, a notification), and is not. */
  readonly unfulfilled: string[];
};

/** The subject of the verdict. */
export type Case = LawDeps & {
  readonly told: readonly TimelineEvent[];
  /** Bodies that must end as letters, one each. */
  readonly poison: readonly string[];
  /** Open streams, by whose they are. */
  readonly heard: ReadonlyMap<string, EventStream>;
  /** Number of events told before the streams were opened. */
  readonly toldBefore: number;
  readonly reads: Reader;
};

/** Compares everything that can be seen from outside with what the history says must be there. */
export async function verdictOn(about: Case): Promise<Findings> {
  const findings: Findings = { lost: [], duplicated: [], resurrected: [], unexpected: [], unfulfilled: [] };
  const letters = await about.streams.all("DLQ");
  const given = new Set(letters.flatMap((letter) => dropOf(letter) ?? []));
  const timelines = expectedTimelines(about.told);
  await judgeTimelines(about, timelines, given, findings);
  judgeLetters(about, letters, findings);
  await judgePages(about, given, findings);
  judgeStreams(about, given, findings);
  await judgeCompletions(about, given, findings);
  return findings;
}

function expectedTimelines(told: readonly TimelineEvent[]): ReadonlyMap<string, readonly Entry[]> {
  const expected = expectedAfter(told);
  return new Map([
    ["timeline:local", expected.local],
    ["timeline:global", expected.global],
    ...PEOPLE.map((user) => [homeKey(user), expected.home(user)] as const),
  ]);
}

async function judgeTimelines(
  about: Case,
  timelines: ReadonlyMap<string, readonly Entry[]>,
  given: ReadonlySet<string>,
  { lost, resurrected, unexpected }: Findings,
): Promise<void> {
  const { redis, told } = about;
  const dead = deadIn(told);
  for (const [key, { entries }] of await heldBy(redis, [...timelines.keys()])) {
    const wanted = new Map(timelines.get(key));
    const held = new Map(entries);
    for (const [drop, score] of wanted) {
      if (!held.has(drop) && !given.has(drop)) lost.push(`${drop} in ${key}`);
      if (held.has(drop) && held.get(drop) !== score)
        unexpected.push(`${drop} in ${key} at ${held.get(drop)}, not ${score}`);
    }
    for (const drop of held.keys()) {
      if (wanted.has(drop)) continue;
      if (!dead.has(drop)) unexpected.push(`${drop} in ${key}`);
      else if (!(await madeUpForByReading(about, key, drop))) resurrected.push(`${drop} in ${key}`);
    }
  }
}

/** A deletion that names no author cannot find every home. There a read must hide what it meets, and take it out. */
async function madeUpForByReading({ redis, reads, told }: Case, key: string, drop: string): Promise<boolean> {
  const user = PEOPLE.find((person) => homeKey(person) === key);
  if (user === undefined) return false;
  if (!missableDeletions(told).has(drop)) return false;
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

function judgeLetters({ poison }: Case, letters: readonly Stored[], { lost, duplicated, unexpected }: Findings): void {
  const bodies = letters.map(({ body }) => String(body));
  for (const body of poison) if (!bodies.includes(body)) lost.push(`the letter of ${body}`);
  for (const letter of letters) {
    const { subject, body, headers } = letter;
    const why = `${headers["Dlq-Error"]}, ${headers["Dlq-Deliveries"]} deliveries`;
    if (!poison.includes(String(body))) unexpected.push(`letter ${subject} (${why}): ${String(body)}`);
  }
  const origins = letters.map(({ headers }) => `${headers["Dlq-Stream"]} ${headers["Dlq-Stream-Seq"]}`);
  duplicated.push(...twice(origins).map((origin) => `letter of ${origin}`));
}

async function judgePages(
  { reads, told }: Case,
  given: ReadonlySet<string>,
  { lost, duplicated, unexpected }: Findings,
): Promise<void> {
  const expected = expectedAfter(told);
  for (const user of [PEOPLE[0], PEOPLE[2], PEOPLE[7]] as string[]) {
    const ids = downIds(await pagesDown((query) => reads.home(user, query), { limit: 40 }));
    const wanted = idsOf(expected.home(user));
    const missing = wanted.filter((drop) => !ids.includes(drop) && !given.has(drop));
    duplicated.push(...twice(ids).map((drop) => `${drop} on pages of ${user}`));
    lost.push(...missing.map((drop) => `${drop} on pages of ${user}`));
    unexpected.push(...ids.filter((drop) => !wanted.includes(drop)).map((drop) => `${drop} on pages of ${user}`));
  }
}

function judgeStreams(about: Case, given: ReadonlySet<string>, findings: Findings): void {
  const { heard, told } = about;
  const expected = expectedAfter(told);
  const dead = deadIn(told);
  for (const [user, stream] of heard) {
    const drops = stream.drops();
    const held = new Set(idsOf(expected.home(user)));
    findings.duplicated.push(...twice(drops).map((drop) => `${drop} on the stream of ${user}`));
    for (const drop of drops) {
      if (dead.has(drop) || held.has(drop)) continue;
      if (authorOf(told, drop) === undefined) findings.unexpected.push(`${drop} on the stream of ${user}`);
      else findings.unfulfilled.push(`${drop} was told to ${user}`);
    }
  }
  findings.lost.push(...missedOnStreams(about, given));
}

/** Events that streams should have sent; none after a reset, which says that something may be missing. */
export function missedOnStreams({ heard, told, toldBefore }: Case, given: ReadonlySet<string>): string[] {
  const expected = expectedAfter(told);
  return [...heard].flatMap(([user, stream]) => {
    if (stream.events.some(({ event }) => event === "reset")) return [];
    const held = new Set(idsOf(expected.home(user)));
    const said = new Set(stream.drops());
    const steady = [user, ...steadyFollowings(user)];
    const due = told.slice(toldBefore).flatMap(({ channel, payload }) => {
      return channel === "drop_created" && steady.includes(payload.user_id) ? [payload.drop_id] : [];
    });
    const missed = due.filter((drop) => held.has(drop) && !given.has(drop) && !said.has(drop));
    return missed.map((drop) => `${drop} on the stream of ${user}`);
  });
}

/** A completed drop is in the author's home. */
async function judgeCompletions(
  { redis, streams, told }: Case,
  given: ReadonlySet<string>,
  { unfulfilled }: Findings,
): Promise<void> {
  const dead = deadIn(told);
  const landed = (await streams.all("COMPLETIONS")).map(({ body }) => JSON.parse(String(body)) as Completion);
  const homes = await heldBy(redis, [...new Set(landed.map(({ user_id }) => homeKey(user_id)))]);
  for (const { event, drop_id, user_id } of landed) {
    if (event !== "drop_created" || dead.has(drop_id) || given.has(drop_id)) continue;
    const entries = homes.get(homeKey(user_id))?.entries ?? [];
    if (!entries.some(([drop]) => drop === drop_id)) unfulfilled.push(`${drop_id} completed, not with ${user_id}`);
  }
}

type Completion = { readonly event: string; readonly drop_id: string; readonly user_id: string };

function deadIn(told: readonly TimelineEvent[]): Set<string> {
  return new Set(told.flatMap(({ channel, payload }) => (channel === "drop_deleted" ? [payload.drop_id] : [])));
}

function authorOf(told: readonly TimelineEvent[], drop: string): string | undefined {
  for (const { channel, payload } of told) {
    if (channel !== "drop_created" && channel !== "ap_drop_received") continue;
    if (payload.drop_id === drop) return payload.user_id;
  }
  return undefined;
}

function twice(items: readonly string[]): string[] {
  return [...new Set(items.filter((item, place) => items.indexOf(item) !== place))];
}
