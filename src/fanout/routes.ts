import { chunkId, type FanoutJob, type HomeTier, MAX_CHUNK_USERS, MAX_JOB_BYTES } from "../contracts/fanout.js";
import type { Audience, Recipients } from "../state/index.js";
import { audienceOf, writeUnlessDeleted } from "../state/index.js";
import type { WithApply } from "./apply.js";
import { type Change, entryOf } from "./change.js";
import type { FanoutDeps } from "./deps.js";
import type { Trace } from "./publish.nats.js";

/** Author whose followers are the audience of a change. `includeAuthor`: the author's own home is written, too. */
export interface Authored {
  readonly user_id: string;
  readonly includeAuthor: boolean;
}

interface Jobs {
  add(users: readonly string[], tier?: HomeTier): Promise<void>;
  end(recipients: Recipients): Promise<void>;
}

/** Opens the queue for the jobs of a change, whose progress is stored. */
export function openJobs({ apply, queue, progress, writer }: WithApply, change: Change, trace: Trace): Jobs {
  const chunks: string[] = [];
  let resumed = performance.now();
  return {
    add: async (users, tier) => {
      if (users.length === 0) return;
      const jobs = jobsOf(tier ? { ...change, tier } : change, users);
      await queue(jobs);
      for (const job of jobs) chunks.push(chunkId(job));
      // Reading a page and queueing it costs as much CPU as writing it, also of the upstream and NATS.
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

/**
 * Queues a drop for its author and its followers, tier by tier. Returns the number of followers. Listeners are written
 * with the first tier, and once more with their page.
 */
export async function toTiers(
  { listeners, writer, recentMs }: FanoutDeps,
  { user_id: author, includeAuthor }: Authored,
  pages: AsyncIterable<Pick<Audience, "ids" | "readers">>,
  jobs: Jobs,
): Promise<number> {
  const ownHome = includeAuthor ? [author] : [];
  await jobs.add(ownHome, "connected");
  let [connected, recent, rest] = [ownHome.length, 0, 0];
  await listeners.visit(author, async (users) => {
    connected += audienceOf(users).ids.length;
    await jobs.add(users, "connected");
  });
  for await (const { ids, readers } of pages) {
    const lately = new Set(await writer.recentReadersAmong(ids, recentMs));
    await jobs.add([...lately], "recent");
    const others = ids.filter((id) => !lately.has(id));
    await jobs.add([...others, ...readers], "rest");
    recent += lately.size;
    rest += others.length;
  }
  await jobs.end([ownHome.length + recent + rest, connected, recent, rest]);
  return recent + rest;
}

/** Adds a drop to the timeline of its author, and to the author's own home. */
export async function addToAuthor(
  { fences, writer, authors }: FanoutDeps,
  change: Change,
  { includeAuthor }: Authored,
): Promise<void> {
  const { user_id: author, drop_id: drop } = change;
  const entry = entryOf(change);
  if (entry.score < fences.retentionStart()) return;
  const audience = audienceOf(includeAuthor ? [author] : []);
  await writeUnlessDeleted([drop], {
    write: () => Promise.all([authors.add(author, entry), writer.addToHomes([{ audience, entries: [entry] }])]),
    tombstonedAmong: fences.tombstonedAmong,
    remove: () =>
      Promise.all([
        authors.removeWithNote(author, drop),
        writer.removeFromHomesWithNote([{ audience, drops: [drop] }]),
      ]),
  });
}

/**
 * Notifies the listeners among the followers of a pulled author, by the index of listeners, which completes a
 * publication. Returns the number of followers. Notifies nobody and returns undefined if that number is unknown, is one
 * page, or is smaller than the number of all listeners.
 */
export async function toListeners(
  { apply, listeners }: WithApply,
  {
    change,
    includeAuthor,
    trace,
  }: { readonly change: Change; readonly includeAuthor: boolean; readonly trace?: Trace },
  pages: AsyncIterable<{ readonly only: boolean; readonly total?: number | undefined }>,
): Promise<number | undefined> {
  for await (const { only, total } of pages) {
    if (only || total === undefined || (await listeners.count()) > total) return undefined;
    await apply.toListeners({ change, audience: audienceOf(includeAuthor ? [change.user_id] : []), trace });
    if (change.action === "remove") return total;
    await apply.toRecentUnfollowers(change);
    await apply.complete([{ change, trace, size: { recipients: includeAuthor ? total + 1 : total, chunks: 1 } }]);
    return total;
  }
  return undefined;
}
