import { createCache, textBytes, textsBytes } from "../contracts/caches.js";
import { listReader } from "../contracts/lists.js";
import { DLQ_HEADER } from "../contracts/subjects.js";
import type { Delivery } from "../delivery/handler.js";
import { mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { readPages } from "../kernel/paging.js";
import { type Audience, audienceOf, currentOf, isPushed, type Published, type PullState } from "../state/index.js";
import type { WithApply } from "./apply.js";
import type { AudienceChange, Change } from "./change.js";
import type { Trace } from "./publish.nats.js";
import { type Authored, addToAuthor, openJobs, toListeners, toTiers } from "./routes.js";
import type { Sources } from "./sources.grpc.js";

export interface Plan {
  readonly change: Omit<Change, "generation" | "user_id" | "pulled" | "tier">;
  readonly trace?: Trace;
  /** Undefined if the author is unknown: then the drop is in nobody's home. */
  readonly user_id: string | undefined;
  readonly includeAuthor: boolean;
  /** Set: only those of these users who follow the author are in the audience. */
  readonly recipients?: readonly string[] | undefined;
}

type PlanDeps = WithApply & { readonly followers: FollowerCache };

/** Maximum number of pages of a list: enough for as many followers in pages of one, the smallest size. */
export const MAX_PAGES = 100_000_000;
const RECIPIENTS_AT_ONCE = 16;
/** Maximum number of states for which a change is planned. An author passes fewer meanwhile, as each lasts seconds. */
const MAX_STATES = 5;
/** Maximum number of users of a cached list: 5,000 followers and the author. */
const MAX_KEPT_USERS = 5_001;

interface Planner {
  readonly single: (plan: Plan) => Promise<void>;
  /** Applies plans whose audiences are known and which were never applied before. Returns the others. */
  readonly batch: (plans: readonly Plan[]) => Promise<readonly Plan[]>;
}

/**
 * Finds the audience of a change. One page of followers is written at once; more become one job a page, whose progress
 * is stored. The generation is read before the followers, so that a change of the list in between is noticed after the
 * write.
 *
 * The author's state is read before the writes and after them. A change that was planned for another state is planned
 * again: it is in the author's timeline or in the homes, whichever the followers read.
 *
 * A drop of a tiered author is in the author's timeline until the last home has it, so that followers see it before
 * their tier is written. A silent drop is pushed: it is history, or applied again.
 */
export function createPlan(deps: PlanDeps): Planner {
  const { apply, fences, followers, authorStates } = deps;
  const stateOf = async (author: string) => (await currentOf(authorStates)).get(author)?.state;
  return {
    single: async (plan) => {
      const { user_id: author } = plan;
      if (author === undefined) return apply.complete([completedForNobody(plan)]);
      for (let tries = 0; tries < MAX_STATES; tries++) {
        const state = await stateOf(author);
        const size = await planOne(deps, { ...plan, user_id: author }, state);
        if (!covers(state, await stateOf(author))) continue;
        if (size !== undefined) await authorStates.updateStates(publishedOf(plan, size));
        return;
      }
      throw new AppError("unavailable", "the author's state changes faster than a change can be planned");
    },
    batch: async (all) => {
      const plans = all.filter(({ user_id }) => user_id !== undefined);
      if (plans.length < all.length)
        await apply.complete(all.filter(({ user_id }) => user_id === undefined).map(completedForNobody));
      if (plans.length === 0) return [];
      const authors = new Set(plans.flatMap(({ user_id }) => user_id ?? []));
      const registry = await currentOf(authorStates);
      const generations = await fences.generations([...authors]);
      const unknown: Plan[] = [];
      const applied: Plan[] = [];
      const parts: AudienceChange[] = [];
      for (const plan of plans) {
        const { includeAuthor, recipients, user_id: author = "", trace } = plan;
        const generation = generations.get(author);
        const isKnown = generation !== undefined && recipients === undefined && !registry.has(author);
        const audience = isKnown ? followers.known({ author, generation, includeAuthor }) : undefined;
        if (!audience || generation === undefined) unknown.push(plan);
        else {
          applied.push(plan);
          // A spread would take V8 4 µs a drop.
          const { action, event, drop_id, created_at, admitted_at, silent } = plan.change;
          const fields = { action, event, drop_id, created_at, admitted_at, silent, user_id: author, generation };
          parts.push({ change: withNames(fields, plan.change), audience, trace });
        }
      }
      await apply.first(parts);
      const now = await currentOf(authorStates);
      const again = now.size === 0 ? [] : applied.filter(({ user_id = "" }) => now.has(user_id));
      const sizeAt = (index: number): number => parts[index]?.audience.ids.length ?? 0;
      await authorStates.updateStates(
        applied.flatMap((plan, index) => publishedOf(plan, followersIn(sizeAt(index), plan))),
      );
      return [...unknown, ...again];
    },
  };
}

/** Adds whom a repost or a reply names, and whether the drop is for followers. */
function withNames<Fields>(fields: Fields, change: Plan["change"]): Fields {
  const { repost_of, repost_author, reply_to_author, for_followers } = change;
  if (for_followers) return { ...fields, repost_of, repost_author, reply_to_author, for_followers };
  if (repost_of !== undefined) return { ...fields, repost_of, repost_author };
  return reply_to_author === undefined ? fields : { ...fields, reply_to_author };
}

const completedForNobody = ({ change, trace }: Plan) => {
  return { change: { ...change, user_id: "", generation: "" }, trace, size: { recipients: 0, chunks: 0 } };
};

/**
 * Returns true if a change planned in one state need not be planned again in the other. Pushed authors have no state.
 */
function covers(planned: PullState | undefined, now: PullState | undefined): boolean {
  if (isPushed(planned)) return isPushed(now);
  return planned !== "pulled" || now === "pulled";
}

/** Returns the number of the author's followers; undefined if only recipients were read. */
async function planOne(
  deps: PlanDeps,
  plan: Plan & Authored,
  state: PullState | undefined,
): Promise<number | undefined> {
  const { fences, authors } = deps;
  const { change: planned, includeAuthor, recipients: named, user_id: author } = plan;
  const generation = (await fences.generations([author])).get(author) as string;
  const change: Change = { ...planned, user_id: author, generation };
  if (named !== undefined) {
    await toRecipients(deps, change, { named, includeAuthor });
    return undefined;
  }
  if (state === undefined) return toFollowers(deps, plan, change);
  const isRemoval = planned.action === "remove";
  const isTiered = state === "tiered" && !isRemoval && !planned.silent;
  if (!isRemoval && (isTiered || !isPushed(state))) await addToAuthor(deps, change, plan);
  if (isTiered) {
    const pages = deps.followers.pages({ author, generation, includeAuthor: false });
    return toTiers(deps, plan, pages, openJobs(deps, change, plan.trace));
  }
  const wasMerged = isRemoval ? await authors.heldBeforeDeletion(author, planned.drop_id) : state === "pulled";
  const pulled = wasMerged ?? !isPushed(state);
  const parent = isRemoval && pulled ? await authors.parentOf(author, planned.drop_id) : undefined;
  const changed = parent === undefined ? change : { ...change, reply_to_author: parent };
  const pages = deps.followers.pages({ author, generation, includeAuthor });
  const reaches = state === "pulled" && pulled;
  const notified = reaches ? await toListeners(deps, { ...plan, change: { ...changed, pulled } }, pages) : undefined;
  if (notified !== undefined && !isRemoval) return notified;
  const size = await toFollowers(deps, plan, {
    ...changed,
    pulled,
    silent: notified === undefined ? change.silent : true,
  });
  // Until every job is stored, planning the deletion again must be able to tell if the timeline had the drop.
  if (isRemoval) await authors.remove(author, planned.drop_id);
  return size;
}

async function toFollowers(deps: PlanDeps, plan: Plan & Authored, change: Change): Promise<number> {
  const { user_id: author, includeAuthor, trace } = plan;
  const jobs = openJobs(deps, change, trace);
  let recipients = 0;
  for await (const page of deps.followers.pages({ author, generation: change.generation, includeAuthor })) {
    if (page.only) {
      await deps.apply.whole({ change, audience: page, trace });
      return followersIn(page.ids.length, plan);
    }
    await jobs.add([...page.ids, ...page.readers]);
    recipients += page.ids.length;
  }
  await jobs.end([recipients]);
  return followersIn(recipients, plan);
}

/** Returns what counts towards an author's state. History and repeated events do not. */
function publishedOf({ change, user_id: author = "" }: Plan, followers: number): Published[] {
  const { action, drop_id: drop, admitted_at, silent } = change;
  return action === "add" && !silent ? [{ author, followers, drop, at: admitted_at }] : [];
}

const followersIn = (recipients: number, { includeAuthor }: Pick<Plan, "includeAuthor">): number =>
  includeAuthor ? recipients - 1 : recipients;

async function toRecipients(
  deps: PlanDeps,
  change: Change,
  { named, includeAuthor }: { named: readonly string[]; includeAuthor: boolean },
): Promise<void> {
  const author = change.user_id;
  const others = [...new Set(named)].filter((user) => user !== author);
  const follows = await mapLimited(others, RECIPIENTS_AT_ONCE, (user) => deps.isFollowing(user, author));
  const followers = others.filter((_, index) => follows[index]);
  const readers = (await deps.findLists(author, [author, ...others])).map(listReader);
  const audience = audienceOf([...(includeAuthor ? [author, ...followers] : followers), ...readers]);
  const nonFollowers = others.filter((_, index) => !follows[index]);
  await deps.apply.whole({ change, audience }, nonFollowers);
}

/** Returns true for a message that may have been handled before, under another sequence. */
export const isRedriven = ({ headers }: Delivery): boolean => headers.get(DLQ_HEADER.redriveCount) !== undefined;

interface FollowerList {
  readonly author: string;
  readonly generation: string;
  readonly includeAuthor: boolean;
}

/**
 * Caches pages of an author's followers. A list of few pages is cached as one, as long as its generation is in force.
 */
export class FollowerCache {
  readonly #cache = createCache<{ readonly generation: string; readonly audience: Audience }>("followers", {
    sizeOf: ({ generation, audience: { ids, keys, readers, listKeys } }) =>
      textBytes(generation) + [ids, keys, readers, listKeys].reduce((sum, texts) => sum + textsBytes(texts), 0),
  });

  constructor(private readonly read: Sources["readFollowers"]) {}

  known({ author, generation, includeAuthor }: FollowerList): Audience | undefined {
    const cached = this.#cache.get(`${includeAuthor ? "+" : "-"}${author}`);
    return cached?.generation === generation ? cached.audience : undefined;
  }

  /** Yields pages. `only`: the page is the whole list. `total`: length of the list, if known. */
  async *pages(
    list: FollowerList,
  ): AsyncGenerator<Audience & { readonly only: boolean; readonly total?: number | undefined }> {
    const { author, generation, includeAuthor } = list;
    const known = this.known(list);
    if (known) {
      yield { ...known, only: true };
      return;
    }
    const ids: string[] = [];
    let next = "";
    for await (const page of readPages((token) => this.read(author, token), MAX_PAGES)) {
      // The author is on the first page and on no other, even if the author follows themselves.
      const others = page.ids.filter((id) => id !== author);
      const isFirst = next === "";
      const audience = audienceOf(isFirst && includeAuthor ? [author, ...others] : others);
      next = page.next;
      if (ids.length <= MAX_KEPT_USERS) ids.push(...audience.ids, ...audience.readers);
      if (next === "" && ids.length <= MAX_KEPT_USERS)
        this.#cache.set(`${includeAuthor ? "+" : "-"}${author}`, { generation, audience: audienceOf(ids) });
      yield { ...audience, only: isFirst && next === "", total: page.total };
    }
  }
}
