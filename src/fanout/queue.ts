import { chunkId, type FanoutJob, type HomeTier, MAX_CHUNK_USERS, MAX_JOB_BYTES } from "../contracts/fanout.js";
import type { Apply, Change } from "./apply.js";
import type { Listeners } from "./listeners.redis.js";
import type { Progress, Recipients } from "./progress.redis.js";
import type { QueueJobs, Trace } from "./publish.nats.js";
import type { TimelineWriter } from "./writer.redis.js";

interface JobsDeps {
  readonly apply: Pick<Apply, "toRecentUnfollowers" | "complete">;
  readonly queue: QueueJobs;
  readonly progress: Progress;
  readonly writer: Pick<TimelineWriter, "yieldAfter">;
}

interface Jobs {
  add(users: readonly string[], tier?: HomeTier): Promise<void>;
  end(recipients: Recipients): Promise<void>;
}

/** The progress of the jobs is kept. */
export function openJobs({ apply, queue, progress, writer }: JobsDeps, change: Change, trace: Trace): Jobs {
  const chunks: string[] = [];
  let resumed = performance.now();
  return {
    add: async (users, tier) => {
      if (users.length === 0) return;
      const jobs = jobsOf(tier ? { ...change, tier } : change, users);
      await queue(jobs);
      for (const job of jobs) chunks.push(chunkId(job));
      // Reading a page and queueing it costs as much CPU as writing it, of the upstream and NATS too.
      await writer.yieldAfter(performance.now() - resumed);
      resumed = performance.now();
    },
    end: async (recipients) => {
      await apply.toRecentUnfollowers(change);
      const size = await progress.planned(change, chunks, recipients);
      if (size) await apply.complete([{ change, trace, size }]);
    },
  };
}

interface ToTiersDeps {
  readonly listeners: Pick<Listeners, "visit">;
  readonly jobs: Jobs;
  readonly pages: AsyncIterable<{ readonly ids: readonly string[] }>;
  readonly writer: Pick<TimelineWriter, "recentAmong">;
  /** Followers who have read their home so lately are in the second tier, ms. */
  readonly recentMs: number;
}

/**
 * Queues a drop for its author and its followers, tier by tier; returns how many followers there are. Those who listen are
 * written with the first tier, and once more with their page.
 */
export async function toTiers(
  { listeners, jobs, pages, writer, recentMs }: ToTiersDeps,
  { user_id: author, includeAuthor }: { readonly user_id: string; readonly includeAuthor: boolean },
): Promise<number> {
  const own = includeAuthor ? [author] : [];
  await jobs.add(own, "connected");
  let [connected, recent, rest] = [own.length, 0, 0];
  await listeners.visit(author, async (users) => {
    connected += users.length;
    await jobs.add(users, "connected");
  });
  for await (const { ids } of pages) {
    const lately = new Set(await writer.recentAmong(ids, recentMs));
    await jobs.add([...lately], "recent");
    const others = ids.filter((id) => !lately.has(id));
    await jobs.add(others, "rest");
    recent += lately.size;
    rest += others.length;
  }
  await jobs.end([own.length + recent + rest, connected, recent, rest]);
  return recent + rest;
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
