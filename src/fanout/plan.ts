import { LRUCache } from "lru-cache";
import { chunkId, type FanoutJob, MAX_CHUNK_USERS, parseJob } from "../contracts/fanout.js";
import type { Fences } from "../contracts/fences.js";
import { DLQ_HEADER } from "../contracts/subjects.js";
import type { Handler } from "../delivery/handler.js";
import { mapLimited } from "../kernel/concurrency.js";
import { readPages } from "../kernel/paging.js";
import type { Apply, Change } from "./apply.js";
import type { QueueJobs } from "./publish.nats.js";
import type { ReadFollowers, ReadFollowing } from "./sources.grpc.js";
import { type Audience, audienceOf, type Progress } from "./store.redis.js";

export interface Plan extends Omit<Change, "generation" | "user_id"> {
  /** Unset: the drop is in nobody's home. */
  readonly user_id: string | undefined;
  readonly includeAuthor: boolean;
  /** The change concerns only those of them who follow the author; unset: all followers. */
  readonly recipients?: readonly string[] | undefined;
}

export interface PlanDeps {
  readonly fences: Pick<Fences, "generation">;
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
/** About 200 MB at 36 bytes an id. */
const MAX_CACHED_IDS = 1_000_000;

/**
 * Finds the audience of a change. One page of followers is written at once; more become one job a page, whose progress
 * is kept. The generation is read before the followers, so that a change of the list in between is seen after the write.
 */
export function createPlan(deps: PlanDeps): (plan: Plan) => Promise<void> {
  const { apply } = deps;
  return async ({ includeAuthor, recipients: named, user_id: author, ...rest }) => {
    if (author === undefined)
      return apply.complete({ ...rest, user_id: "", generation: "" }, { recipients: 0, chunks: 0 });
    const generation = await deps.fences.generation(author);
    const change: Change = { ...rest, user_id: author, generation };
    if (named !== undefined) return toRecipients(deps, change, { named, includeAuthor });
    const chunks: string[] = [];
    let recipients = 0;
    for await (const page of deps.followers.pages({ author, generation, includeAuthor })) {
      if (page.only) return apply.whole(change, page);
      const jobs = jobsOf(change, page.ids);
      await deps.queue(jobs);
      for (const job of jobs) chunks.push(chunkId(job.user_ids));
      recipients += page.ids.length;
    }
    await apply.toRecentUnfollowers(change);
    const finished = await deps.progress.planned(change, chunks, recipients);
    if (finished) await apply.complete(change, finished);
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
  await apply.whole(change, audience, nonFollowers);
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

/** Handles `fanout.job.*`: writes one chunk, and publishes the completion after the last one. */
export function createJobHandler({ apply, progress, untilCovered }: JobDeps): Handler {
  return async ({ body, headers }, { stopping }) => {
    const { user_ids, ...change } = parseJob(body);
    // A redriven job was not pending when the server identity was last recorded: a loss right after it would not be
    // replayed from there.
    if (headers.get(DLQ_HEADER.redriveCount) !== undefined) await untilCovered?.(change.admitted_at, stopping);
    await apply.chunk(change, audienceOf(user_ids));
    const finished = await progress.done(change, chunkId(user_ids));
    if (finished) await apply.complete(change, finished);
  };
}

/** Pages of an author's followers. A list of one page is cached as long as its generation is in force. */
export class Followers {
  readonly #cache = new LRUCache<string, { readonly generation: string; readonly audience: Audience }>({
    maxSize: MAX_CACHED_IDS,
    sizeCalculation: ({ audience }) => audience.ids.length + 1,
  });

  constructor(private readonly read: ReadFollowers) {}

  /** `only`: the page is the whole list. */
  async *pages(of: {
    author: string;
    generation: string;
    includeAuthor: boolean;
  }): AsyncGenerator<Audience & { only: boolean }> {
    const { author, generation, includeAuthor } = of;
    const name = `${includeAuthor ? "+" : "-"}${author}`;
    const cached = this.#cache.get(name);
    if (cached?.generation === generation) {
      yield { ...cached.audience, only: true };
      return;
    }
    let first = true;
    for await (const page of readPages((token) => this.read(author, token), MAX_PAGES)) {
      // The author is on the first page and on no other, also one who follows themselves.
      const others = page.ids.filter((id) => id !== author);
      const audience = audienceOf(first && includeAuthor ? [author, ...others] : others);
      const only = first && page.next === "";
      if (only) this.#cache.set(name, { generation, audience });
      yield { ...audience, only };
      first = false;
    }
  }
}
