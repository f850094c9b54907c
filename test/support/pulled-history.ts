import { expect } from "@jest/globals";
import fc from "fast-check";
import type { TimelineEvent as Admitted } from "../../src/contracts/events.js";
import type { FanoutJob } from "../../src/contracts/fanout.js";
import { toToken } from "../../src/contracts/page-request.js";
import { entryOfDrop } from "../../src/contracts/timelines.js";
import { createVeilUsers } from "../../src/fanout/standings.js";
import { GetTimelineRequest, GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { silent } from "../../src/kernel/logger.js";
import { type GetTimeline, getHomeTimeline, getSharedTimeline, type ReadDeps } from "../../src/reads/get-timeline.js";
import { createRebuild, snapshotOf } from "../../src/reads/rebuild.js";
import type { AuthorRegistry } from "../../src/state/big-authors/registry.js";
import { createFences } from "../../src/state/fences/fences.js";
import {
  AUTHOR_PREFIX,
  authorKey,
  followsKeyOfHome,
  hiddenKey,
  homeKey,
  PULLED_KEY,
  pullsKey,
} from "../../src/state/keys.js";
import { type FanoutBench, handle, type MemoryLog, openFanout, work } from "./fanout.js";
import { historyOf as logOf, rebuildQueue, sourcesOf } from "./memory-upstreams.js";
import { fillStandings, openRegistry, step } from "./pulled.js";
import { adaptersOn, type Merge, type RedisBench } from "./redis.js";
import { type Once, onceIn } from "./reposts-once.js";
import {
  created,
  deleted,
  followed,
  received,
  related,
  standing,
  type TimelineEvent,
  unfollowed,
} from "./timeline-events.js";
import { World } from "./world.js";

/** Of each step the fields that its kind needs, as numbers: the same history for every way to cross. */
export interface Step {
  readonly kind:
    | "post"
    | "repost"
    | "delete"
    | "edge"
    | "relate"
    | "standing"
    | "cross"
    | "proceed"
    | "lose"
    | "flush"
    | "read";
  readonly who: number;
  readonly whom: number;
  readonly at: number;
  readonly pick: number;
}

/** `off`: every author is pushed; `pull`, `tier`: everybody with a follower is; `random`: as the history says. */
export type Crossing = "off" | "pull" | "tier" | "random";

export type Mutate = (deps: FanoutBench["deps"]) => FanoutBench["deps"];

const USERS = ["ada", "bob", "eve", "rik é", "zoë"] as const;
const ACTOR = "https://remote.example/rita";
const AUTHORS = [...USERS, ACTOR];
/** They write twice as often as the others. */
const BUSY = ["ada", ACTOR];
const VISIBILITIES = ["public", "public", "unlisted", "followers", "direct"] as const;
const MAX_ENTRIES = 5;
/** Reposts of one drop are shown once in so many places, below the cap, too. */
const REPOST_WINDOW = 3;
const START = Date.now() - 60_000;

const weighted: readonly (readonly [Step["kind"], number])[] = [
  ["post", 16],
  ["repost", 3],
  ["relate", 2],
  ["standing", 1],
  ["delete", 3],
  ["edge", 5],
  ["cross", 3],
  ["proceed", 3],
  ["lose", 2],
  ["read", 4],
];
const stepOf = (kind: fc.Arbitrary<Step["kind"]>): fc.Arbitrary<Step> =>
  fc.record({ kind, who: fc.nat(), whom: fc.nat(), at: fc.nat(29), pick: fc.nat() });
/** At most one loss of all of Redis. */
function historyOf(weights: typeof weighted): fc.Arbitrary<readonly Step[]> {
  const kinds = fc.oneof(...weights.map(([kind, weight]) => ({ weight, arbitrary: fc.constant(kind) })));
  const some = fc.array(stepOf(kinds), { minLength: 10, maxLength: 40, size: "max" });
  return fc
    .tuple(some, fc.option(stepOf(fc.constant("flush")), { nil: undefined, freq: 3 }), some)
    .map(([before, flush, after]) => [...before, ...(flush ? [flush] : []), ...after]);
}

export const history = historyOf(weighted);
/** Nobody hides anybody or is suspended, and nothing is reposted: what has to do with none of it is found sooner. */
export const withoutPeople = historyOf(weighted.filter(([kind]) => !["repost", "relate", "standing"].includes(kind)));

const pickOf = <T>(items: readonly T[], pick: number): T => items[pick % items.length] as T;

/** Fan-out, reads and the crossings of authors on one Redis, and the world they are about. */
export class Scene {
  readonly #world = new World();
  readonly #log: MemoryLog = [];
  readonly #registry: AuthorRegistry;
  readonly #fanout: FanoutBench;
  readonly #reads: ReadDeps;
  readonly #standings: FanoutBench["deps"]["standings"];
  readonly #alive: { readonly id: string; readonly author: string; readonly isRepost?: true }[] = [];
  #under: Promise<void>[] = [];
  /** Those of them that are about drops. */
  #planning: Promise<void>[] = [];
  #drops = 0;

  constructor(
    private readonly redis: RedisBench,
    private readonly crossing: Crossing,
    mutate: Mutate,
    merge?: Merge,
  ) {
    const thresholdOf = (way: Crossing) => (crossing === way ? 0 : Number.POSITIVE_INFINITY);
    this.#world.judgesReplies = true;
    this.#registry = openRegistry(redis, thresholdOf("pull"), { tier: thresholdOf("tier") });
    const pulled = this.#registry;
    const readHidden = async (user: string) => this.#world.hiddenFrom(user);
    const options = { log: this.#log, maxEntries: MAX_ENTRIES, pageSize: 2, readHidden, judgesReplies: true };
    this.#fanout = openFanout(redis, this.#world, {
      ...options,
      change: (deps) => mutate({ ...deps, authorStates: pulled }),
    });
    const { store, pulls, hidden, fenceStore, standings } = adaptersOn(
      redis.scripts,
      { maxEntries: MAX_ENTRIES, merge, readHidden, repostWindow: REPOST_WINDOW, judgesReplies: true },
      pulled,
    );
    this.#standings = standings;
    const fences = createFences({ store: fenceStore, readHistory: logOf(this.#log), log: silent });
    this.#reads = {
      ...{ store, pulls, hidden, fences, rebuildQueue, maxEntries: MAX_ENTRIES, judgesReplies: true, log: silent },
      openSources: () => sourcesOf(this.#world),
      deadlineMaxMs: 30_000,
      readShared: async () => snapshotOf(this.#world.localOf().map(entryOfDrop), MAX_ENTRIES, 0),
      rebuild: createRebuild({
        store,
        fences,
        fillHidden: hidden.fill,
        rebuildQueue,
        log: silent,
        observe: () => undefined,
      }),
      maybeLost: () => false,
      affected: () => [],
      isAffected: async () => false,
      observe: () => undefined,
    };
  }

  /** Returns the pages that were read: the same, whoever is pulled. */
  async run(steps: readonly Step[]): Promise<readonly (readonly string[])[]> {
    const pages: (readonly string[])[] = [];
    for (const one of steps) {
      if (one.kind === "read") pages.push(await this.#read(pickOf(USERS, one.who), one.pick));
      else await this.#change(one);
    }
    for (const [at, user] of USERS.entries()) pages.push(await this.#read(user, at));
    return pages;
  }

  async #change(one: Step): Promise<void> {
    if (one.kind === "post") this.#apply(this.#post(one));
    else if (one.kind === "delete" && this.#alive.length > 0) this.#apply(this.#delete(one));
    else if (one.kind === "repost") this.#apply(this.#repost(one));
    else if (one.kind === "edge") this.#apply(this.#edge(one));
    else if (one.kind === "relate") for (const event of this.#relate(one)) this.#apply(event);
    else if (one.kind === "standing") this.#apply(this.#standing(one));
    else if (one.kind === "lose") await this.#lose(this.#keyOf(one));
    else if (one.kind === "flush")
      await this.#settled(() => this.redis.raw.flushall().then(() => this.#fillStandings()));
    else if (one.kind === "proceed") await this.#proceed();
    else if (one.kind === "cross" && this.crossing === "random") await this.#cross(pickOf(AUTHORS, one.who), one.pick);
  }

  /** Events are handled beside what follows, up to the next read. */
  #apply(event: TimelineEvent | undefined): void {
    if (!event) return;
    const time = Date.now();
    this.#log.push({ event: { name: event.channel, payload: event.payload } as Admitted, time });
    const handled = handle(this.#fanout, event, time);
    this.#under.push(handled);
    if (event.channel !== "standing_changed" && !event.channel.startsWith("user_")) this.#planning.push(handled);
  }

  /** Does something once nothing is being handled, but for jobs of tiers. */
  async #settled(
    then: () => Promise<unknown> = async () => undefined,
    isHeld: (job: FanoutJob, at: number) => boolean = () => false,
  ): Promise<void> {
    const under = this.#under;
    [this.#under, this.#planning] = [[], []];
    await Promise.all(under);
    const { jobs } = this.#fanout;
    const held = jobs.filter(isHeld);
    jobs.splice(0, jobs.length, ...jobs.filter((job) => !held.includes(job)));
    await work(this.#fanout);
    jobs.push(...held);
    await then();
  }

  /** No author's timeline holds more drops than it may. */
  #isHeld(pick: number) {
    const drops = new Set(this.#fanout.jobs.map(({ drop_id }) => drop_id));
    return ({ tier }: FanoutJob, at: number) =>
      tier !== undefined && drops.size < MAX_ENTRIES && ((pick >> (at % 24)) & 1) === 1;
  }

  async #proceed(): Promise<void> {
    if (this.crossing === "off") return;
    // Events that are being planned hold up the same steps as jobs, which they become.
    const states = [...(await this.#registry.refresh()).values()].map(({ state }) => state);
    if (states.includes("leaving") || states.includes("tiering")) await Promise.all(this.#planning);
    await step(this.#fanout, this.#registry);
  }

  async #cross(author: string, pick: number): Promise<void> {
    await this.#registry.choose(author, pickOf(["push", "tier", "pull"], pick));
  }

  async #lose(key: string): Promise<void> {
    // A process notices the loss of the registry before it changes it the next time. What tiers have not got yet is in
    // the author's timeline only.
    if (key === PULLED_KEY || key.startsWith(AUTHOR_PREFIX))
      await this.#settled(async () => this.redis.raw.del(key).then(() => this.#registry.refresh()));
    else await this.redis.raw.del(key);
  }

  #post({ who, whom, at, pick }: Step): TimelineEvent {
    const user_id = pick % 3 === 0 ? pickOf(BUSY, who) : pickOf(AUTHORS, who);
    const visibility = pickOf(VISIBILITIES, whom);
    const recipients = visibility === "direct" ? [pickOf(USERS, pick), pickOf(USERS, pick + at)] : [];
    const drop = { drop_id: `${at % 2 ? "d" : "é"}${this.#drops++}`, user_id, created_at: START + at };
    const parent = this.#parent(pick);
    this.#alive.push({ id: drop.drop_id, author: user_id });
    const payload = { ...drop, visibility, recipients };
    this.#world.post({ ...payload, ...(user_id === ACTOR ? { remote: true } : parent) });
    return user_id === ACTOR ? received(payload) : created({ ...payload, ...parent });
  }

  /** Half of the drops are replies, some of them to their authors. */
  #parent(pick: number) {
    const parent = this.#alive.length > 0 && pick % 2 === 0 ? pickOf(this.#alive, pick >> 1) : undefined;
    if (parent === undefined || parent.isRepost) return {};
    return { reply_to: parent.id, reply_to_author: parent.author };
  }

  #delete({ pick }: Step): TimelineEvent | undefined {
    const [gone] = this.#alive.splice(pick % this.#alive.length, 1);
    if (!gone) return undefined;
    this.#world.remove(gone.id);
    return gone.author === ACTOR ? deleted(gone.id) : deleted(gone.id, gone.author);
  }

  #edge({ who, whom }: Step): TimelineEvent | undefined {
    const [follower, author] = [pickOf(USERS, who), pickOf(AUTHORS, whom)];
    const { blocking, blocked_by } = this.#world.relation(follower, author);
    if (follower === author || blocking || blocked_by) return undefined;
    if (!this.#world.follows(follower, author)) return followed(follower, author, this.#world.follow(follower, author));
    return unfollowed(follower, author, this.#world.unfollow(follower, author));
  }

  #repost({ who, at, pick }: Step): TimelineEvent | undefined {
    const [user_id, original] = [pickOf(USERS, who), this.#alive.length > 0 ? pickOf(this.#alive, pick) : undefined];
    if (original === undefined || original.isRepost) return undefined;
    const drop = { drop_id: `r${this.#drops++}`, user_id, created_at: START + at, visibility: "public" } as const;
    const repost = { ...drop, repost_of: original.id, repost_author: original.author };
    this.#alive.push({ id: drop.drop_id, author: user_id, isRepost: true });
    this.#world.post(repost);
    return created(repost);
  }

  /** The version of a relation counts for nothing: timelines ask how it is. */
  #relate({ who, whom, pick }: Step): readonly TimelineEvent[] {
    const [user, target] = [pickOf(USERS, who), pickOf(AUTHORS, whom)];
    if (user === target) return [];
    const world = this.#world;
    const { blocking, muting } = world.relation(user, target);
    if (pick % 2 === 0) {
      if (muting) world.unmute(user, target);
      else world.mute(user, target, pick % 4 === 0);
      return [related(muting ? "user_unmuted" : "user_muted", user, target, { reposts_only: pick % 4 === 0 })];
    }
    if (blocking) {
      world.unblock(user, target);
      return [related("user_unblocked", user, target)];
    }
    const edges = [[user, target] as const, [target, user] as const].filter(([one, other]) =>
      world.follows(one, other),
    );
    const ended = edges.map(([one, other]) => unfollowed(one, other, world.unfollow(one, other)));
    world.block(user, target);
    return [related("user_blocked", user, target), ...ended];
  }

  #standing({ who, pick }: Step): TimelineEvent {
    const user_id = pickOf(AUTHORS, who);
    const name = pickOf(["suspended", "limited", "suspended", "active"] as const, pick);
    return standing({ user_id }, name, { version: this.#world.standings.set({ user_id }, name) });
  }

  /** A process that finds no standings in Redis reads them from the users service. */
  async #fillStandings(): Promise<void> {
    const { deps } = this.#fanout;
    const known = AUTHORS.map((user_id) => ({ user_id, standing: this.#world.standings.of(user_id), until: 0 }));
    const versions = new Map(this.#world.standings.changed(0, 0).map(({ user_id, version }) => [user_id, version]));
    const changes = known.flatMap((one) => {
      const version = versions.get(one.user_id);
      return version === undefined ? [] : [{ ...one, version }];
    });
    await fillStandings([deps.standings, this.#standings], changes, createVeilUsers(deps));
  }

  #keyOf({ who, pick }: Step): string {
    const [user, author] = [pickOf(USERS, who), pickOf(AUTHORS, who)];
    const beside = [pullsKey(user), hiddenKey(user), followsKeyOfHome(homeKey(user))];
    return pickOf([homeKey(user), ...beside, authorKey(author), PULLED_KEY], pick);
  }

  /** Turns all pages down and up, compares them with the world, and reads next to one drop. */
  async #read(user: string, pick: number): Promise<readonly string[]> {
    await this.#settled(undefined, this.#isHeld(pick));
    if (this.crossing === "pull" || this.crossing === "tier") await this.#proceed();
    await Promise.all([this.#standings.refresh(), this.#fanout.deps.standings.refresh()]);
    const all = this.#world.homeOf(user).map(entryOfDrop);
    const once = onceIn(all, REPOST_WINDOW);
    const ids = once.map(({ drop }) => drop);
    const limit = 1 + (pick % 6);
    const down: Once[] = [];
    for (let max_id = ""; ; ) {
      const page = await this.#page(user, { limit, max_id });
      down.push(...page.items.map(({ drop_id, reposted_by }) => ({ drop: drop_id, repostedBy: reposted_by })));
      if (!page.has_more) break;
      max_id = page.next_max_id;
    }
    expect({ user, down }).toEqual({ user, down: once });
    await this.#readLocal(user, limit);
    const last = all.at(-1);
    if (!last) return ids;
    const up: string[] = [];
    for (let min_id = toToken(last); ; ) {
      const page = await this.#page(user, { limit, min_id });
      up.unshift(...page.drop_ids);
      if (!page.has_more) break;
      min_id = page.prev_min_id;
    }
    expect({ user, up }).toEqual({ user, up: ids.filter((id) => id !== last.drop) });
    const at = pick % all.length;
    const since = await this.#page(user, { limit, since_id: toToken(pickOf(all, at)) });
    const above = new Set(all.slice(0, at).map(({ drop }) => drop));
    expect({ user, since: since.drop_ids }).toEqual({ user, since: ids.filter((id) => above.has(id)).slice(0, limit) });
    return ids;
  }

  /** Above its floor local shows a user all that they see; below it some of that. */
  async #readLocal(user: string, limit: number): Promise<void> {
    const shown: string[] = [];
    for (let max_id = ""; ; ) {
      const page = await this.#page(user, { limit, max_id }, getSharedTimeline(this.#reads, "local"));
      shown.push(...page.drop_ids);
      if (!page.has_more) break;
      max_id = page.next_max_id;
    }
    const expected = this.#world.localOf(user);
    const floor = Number(await this.redis.raw.zscore("timeline:local", "~floor"));
    const above = expected.filter(({ created_at }) => created_at > floor).map(({ drop_id }) => drop_id);
    expect({ user, local: shown.slice(0, above.length) }).toEqual({ user, local: above });
    const seen = new Set(expected.map(({ drop_id }) => drop_id));
    expect({ user, hidden: shown.filter((id) => !seen.has(id)) }).toEqual({ user, hidden: [] });
  }

  async #page(
    user_id: string,
    asked: Partial<GetTimelineRequest>,
    get: GetTimeline = getHomeTimeline(this.#reads),
  ): Promise<GetTimelineResponse> {
    const request = GetTimelineRequest.create({ user_id, ...asked });
    const context = { deadline: Date.now() + 20_000, traced: <T>(work: () => Promise<T>) => work() };
    const answer = await get(request, context);
    const page = GetTimelineResponse.decode(answer);
    expect(page.degraded).toBe(false);
    return page;
  }
}
