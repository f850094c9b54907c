import { LRUCache } from "lru-cache";
import { chunkId, type FanoutJob, MAX_CHUNK_USERS, parseJob } from "../contracts/fanout.js";
import type { Fences } from "../contracts/fences.js";
import { DLQ_HEADER } from "../contracts/subjects.js";
import type { Delivery, Handlers } from "../delivery/handler.js";
import { sampledTrace } from "../delivery/telemetry.js";
import { mapLimited } from "../kernel/concurrency.js";
import { readPages } from "../kernel/paging.js";
import type { Apply, Change, Part } from "./apply.js";
import type { QueueJobs, Trace } from "./publish.nats.js";
import type { ReadFollowers, ReadFollowing } from "./sources.grpc.js";
import { type Audience, audienceOf, type Progress } from "./store.redis.js";

export interface Plan {
  readonly change: Omit<Change, "generation" | "user_id">;
  readonly trace?: Trace;
  /** Unset: the drop is in nobody's home. */
  readonly user_id: string | undefined;
  readonly includeAuthor: boolean;
  /** The change concerns only those of them who follow the author; unset: all followers. */
  readonly recipients?: readonly string[] | undefined;
}

export interface PlanDeps {
  readonly fences: Pick<Fences, "generations">;
  readonly followers: Followers;
  readonly apply: Apply;
  readonly queue: QueueJobs;
  readonly progress: Progress;
  readonly readFollowing: ReadFollowing;
}

/** Resolves once an event of that time (ms since the epoch) would be applied again after a loss of Redis. */
export type UntilCovered = (admittedAt: number, stopping: AbortSignal) => Promise<void>;

/** Bytes of user ids a job carries at most, as JSON; a message may have 1 MiB with its headers. */
const MAX_JOB_BYTES = 512 * 1024;
/** Of the smallest size, one follower. */
const MAX_PAGES = 100_000_000;
const RECIPIENTS_AT_ONCE = 16;
/** 5,000 followers and the author. */
const MAX_KEPT_USERS = 5_001;
/** About 200 MB at 36 bytes an id. */
const MAX_CACHED_IDS = 1_000_000;

export interface Planner {
  readonly one: (plan: Plan) => Promise<void>;
  /** Applies those whose audiences are known, which were never applied before; returns the others. */
  readonly together: (plans: readonly Plan[]) => Promise<readonly Plan[]>;
}

/**
 * Finds the audience of a change. One page of followers is written at once; more become one job a page, whose progress
 * is kept. The generation is read before the followers, so that a change of the list in between is seen after the write.
 */
export function createPlan(deps: PlanDeps): Planner {
  const { apply, fences, followers } = deps;
  return {
    one: async ({ change: planned, includeAuthor, recipients: named, user_id: author, trace }) => {
      if (author === undefined) {
        const change = { ...planned, user_id: "", generation: "" };
        return apply.complete([{ change, trace, size: { recipients: 0, chunks: 0 } }]);
      }
      const generation = (await fences.generations([author])).get(author) as string;
      const change: Change = { ...planned, user_id: author, generation };
      if (named !== undefined) return toRecipients(deps, change, { named, includeAuthor });
      const chunks: string[] = [];
      let recipients = 0;
      for await (const page of followers.pages({ author, generation, includeAuthor })) {
        if (page.only) return apply.whole({ change, audience: page, trace });
        const jobs = jobsOf(change, page.ids);
        await deps.queue(jobs);
        for (const job of jobs) chunks.push(chunkId(job.user_ids));
        recipients += page.ids.length;
      }
      await apply.toRecentUnfollowers(change);
      const size = await deps.progress.planned(change, chunks, recipients);
      if (size) await apply.complete([{ change, trace, size }]);
    },
    together: async (plans) => {
      const authors = new Set(plans.flatMap(({ user_id }) => user_id ?? []));
      const generations = await fences.generations([...authors]);
      const left: Plan[] = [];
      const parts: Part[] = [];
      for (const plan of plans) {
        const { includeAuthor, recipients, user_id: author = "", trace } = plan;
        const generation = generations.get(author);
        const audience =
          generation !== undefined && recipients === undefined
            ? followers.known({ author, generation, includeAuthor })
            : undefined;
        if (!audience || generation === undefined) left.push(plan);
        else parts.push({ change: { ...plan.change, user_id: author, generation }, audience, trace });
      }
      await apply.first(parts);
      return left;
    },
  };
}

async function toRecipients(
  { apply, readFollowing }: PlanDeps,
  change: Change,
  { named, includeAuthor }: { named: readonly string[]; includeAuthor: boolean },
): Promise<void> {
  const author = change.user_id;
  const others = [...new Set(named)].filter((user) => user !== author);
  const follows = await mapLimited(others, RECIPIENTS_AT_ONCE, (user) => isFollowing(readFollowing, user, author));
  const followers = others.filter((_, index) => follows[index]);
  const audience = audienceOf(includeAuthor ? [author, ...followers] : followers);
  const nonFollowers = others.filter((_, index) => !follows[index]);
  await apply.whole({ change, audience }, nonFollowers);
}

async function isFollowing(read: ReadFollowing, user: string, author: string): Promise<boolean> {
  for await (const { ids } of readPages((token) => read(user, token))) if (ids.includes(author)) return true;
  return false;
}

function jobsOf(change: Change, users: readonly string[]): FanoutJob[] {
  const jobs: FanoutJob[] = [];
  let part: string[] = [];
  let bytes = 0;
  for (const user of users) {
    const size = Buffer.byteLength(JSON.stringify(user)) + 1;
    if (bytes + size > MAX_JOB_BYTES || part.length === MAX_CHUNK_USERS) {
      jobs.push({ ...change, user_ids: part });
      part = [];
      bytes = 0;
    }
    part.push(user);
    bytes += size;
  }
  if (part.length > 0) jobs.push({ ...change, user_ids: part });
  return jobs;
}

interface JobDeps {
  readonly apply: Apply;
  readonly progress: Progress;
  readonly untilCovered?: UntilCovered | undefined;
}

/** Handles `fanout.job.*`: writes chunks, and publishes a completion after the last one of a fan-out. */
export function createJobHandlers({ apply, progress, untilCovered }: JobDeps): Handlers {
  const all = async (deliveries: readonly Delivery[], traceOf?: typeof sampledTrace): Promise<void> => {
    const jobs = deliveries.map(({ body, headers }) => ({ ...parseJob(body), trace: traceOf?.(headers) }));
    const parts = jobs.map(({ user_ids, trace, ...change }) => ({ change, audience: audienceOf(user_ids), trace }));
    await apply.chunks(parts);
    const finished = await Promise.all(
      parts.map(({ change }, at) => progress.done(change, chunkId(jobs[at]?.user_ids ?? []))),
    );
    await apply.complete(
      parts.flatMap((part, at) => {
        const size = finished[at];
        return size ? [{ ...part, size }] : [];
      }),
    );
  };
  return {
    one: async (delivery, { stopping }) => {
      // A redriven job was not pending when the server identity was last recorded: a loss right after it would not be
      // replayed from there.
      if (isRedriven(delivery)) await untilCovered?.(parseJob(delivery.body).admitted_at, stopping);
      await all([delivery]);
    },
    together: async (deliveries) => {
      await all(
        deliveries.filter((delivery) => !isRedriven(delivery)),
        sampledTrace,
      );
      return deliveries.filter(isRedriven);
    },
  };
}

/** It may have been handled before, under another sequence. */
export const isRedriven = ({ headers }: Delivery): boolean => headers.get(DLQ_HEADER.redriveCount) !== undefined;

interface ListOf {
  readonly author: string;
  readonly generation: string;
  readonly includeAuthor: boolean;
}

/** Pages of an author's followers. A list of few pages is kept as one, as long as its generation is in force. */
export class Followers {
  readonly #cache = new LRUCache<string, { readonly generation: string; readonly audience: Audience }>({
    maxSize: MAX_CACHED_IDS,
    sizeCalculation: ({ audience }) => audience.ids.length + 1,
  });

  constructor(private readonly read: ReadFollowers) {}

  known({ author, generation, includeAuthor }: ListOf): Audience | undefined {
    const cached = this.#cache.get(`${includeAuthor ? "+" : "-"}${author}`);
    return cached?.generation === generation ? cached.audience : undefined;
  }

  /** `only`: the page is the whole list. */
  async *pages(of: ListOf): AsyncGenerator<Audience & { only: boolean }> {
    const { author, generation, includeAuthor } = of;
    const known = this.known(of);
    if (known) {
      yield { ...known, only: true };
      return;
    }
    const ids: string[] = [];
    let next = "";
    for await (const page of readPages((token) => this.read(author, token), MAX_PAGES)) {
      // The author is on the first page and on no other, also one who follows themselves.
      const others = page.ids.filter((id) => id !== author);
      const isFirst = next === "";
      const audience = audienceOf(isFirst && includeAuthor ? [author, ...others] : others);
      next = page.next;
      if (ids.length <= MAX_KEPT_USERS) ids.push(...audience.ids);
      if (next === "" && ids.length <= MAX_KEPT_USERS)
        this.#cache.set(`${includeAuthor ? "+" : "-"}${author}`, { generation, audience: audienceOf(ids) });
      yield { ...audience, only: isFirst && next === "" };
    }
  }
}
