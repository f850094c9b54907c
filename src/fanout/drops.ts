import type { DropCreated, DropDeleted, DropEvent, RemoteDropReceived } from "../contracts/events.js";
import { type Fences, writeUnlessDeleted } from "../contracts/fences.js";
import { mapLimited } from "../kernel/mapped.js";
import { readPages } from "../kernel/paging.js";
import type { Apply, Change } from "./apply.js";
import { audienceOf } from "./audience.js";
import { completedOf } from "./completed.js";
import type { Plan } from "./plan.js";
import type { Complete, ReadFollowing, TimelineWriter } from "./ports.js";

interface DropDeps {
  readonly fences: Fences;
  readonly writer: TimelineWriter;
  readonly plan: (plan: Plan) => Promise<void>;
  readonly apply: Apply;
  readonly complete: Complete;
  readonly readFollowing: ReadFollowing;
}

const RECIPIENTS_AT_ONCE = 16;

/** When an event was admitted to the log (ms since the epoch), and whether nobody is to be notified of it. */
export type Admission = Pick<Change, "admitted_at" | "silent">;

/** Makes the function that applies what was published, deleted, or received from elsewhere. */
export function createApplyDrop(deps: DropDeps): (event: DropEvent, admission: Admission) => Promise<void> {
  return async ({ name, payload }, admission) => {
    if (name === "drop_created") return created(deps, payload, admission);
    if (name === "drop_deleted") return deleted(deps, payload, admission);
    return received(deps, payload, admission);
  };
}

async function created(deps: DropDeps, drop: DropCreated, admission: Admission): Promise<void> {
  const entry = { drop: drop.drop_id, score: drop.created_at };
  const plan: Plan = {
    action: "add",
    event: "drop_created",
    drop_id: drop.drop_id,
    user_id: drop.user_id,
    created_at: drop.created_at,
    ...admission,
    includeAuthor: true,
  };
  if (drop.visibility === "direct") return direct(deps, plan, drop.recipients ?? []);
  if (drop.visibility === "public") await addShared(deps, ["local", "global"], entry);
  await deps.plan(plan);
}

async function received(deps: DropDeps, drop: RemoteDropReceived, admission: Admission): Promise<void> {
  if (drop.user_id !== undefined) await deps.writer.rememberActor(drop.drop_id, drop.user_id);
  const { drop_id, created_at, user_id, visibility } = drop;
  if (visibility === "public") await addShared(deps, ["global"], { drop: drop_id, score: created_at });
  const change = { action: "add", event: "ap_drop_received", drop_id, created_at, ...admission } as const;
  if (user_id === undefined)
    return deps.complete(completedOf({ ...change, user_id: "", generation: "" }, { recipients: 0, chunks: 0 }));
  const plan: Plan = { ...change, user_id, includeAuthor: false };
  if (visibility === "direct") return direct(deps, plan, drop.recipients ?? []);
  await deps.plan(plan);
}

/** Writes first, then looks for a tombstone; see the invariant «the dead stay dead». */
async function addShared(
  { fences, writer }: DropDeps,
  timelines: readonly ("local" | "global")[],
  entry: { drop: string; score: number },
): Promise<void> {
  if (entry.score < fences.retentionStart()) return;
  await writeUnlessDeleted([entry.drop], {
    write: () => writer.addShared(timelines, entry),
    tombstonedAmong: fences.tombstonedAmong,
    remove: () => writer.removeShared(entry.drop),
  });
}

async function deleted(deps: DropDeps, drop: DropDeleted, admission: Admission): Promise<void> {
  const { fences, writer } = deps;
  await fences.recordTombstone(drop.drop_id, admission.admitted_at);
  const author = drop.user_id ?? (await writer.actorOf(drop.drop_id));
  await writer.rememberCreation(drop.drop_id, author);
  await writer.removeShared(drop.drop_id);
  const change = {
    action: "remove",
    event: "drop_deleted",
    drop_id: drop.drop_id,
    created_at: admission.admitted_at,
    ...admission,
  } as const;
  if (author !== undefined) await deps.plan({ ...change, user_id: author, includeAuthor: true });
  else await deps.complete(completedOf({ ...change, user_id: "", generation: "" }, { recipients: 0, chunks: 0 }));
}

/** A direct drop goes to its author, where that is one of our users, and to those of its recipients who follow the author. */
async function direct(deps: DropDeps, plan: Plan, recipients: readonly string[]): Promise<void> {
  const { includeAuthor, ...rest } = plan;
  const author = plan.user_id;
  const generation = await deps.fences.generation(author);
  const named = [...new Set(recipients)].filter((user) => user !== author);
  const following = await mapLimited(named, RECIPIENTS_AT_ONCE, (user) => follows(deps.readFollowing, user, author));
  const followers = named.filter((_, index) => following[index]);
  const audience = audienceOf(includeAuthor ? [author, ...followers] : followers);
  const others = named.filter((_, index) => !following[index]);
  const change: Change = { ...rest, generation };
  await deps.apply.to(change, audience);
  // Handled before, it may have been written to who has left since (see `leavers.ts`).
  await deps.apply.takeOut(change, await deps.fences.unfollowedAmong(author, others));
  await deps.complete(completedOf(change, { recipients: audience.ids.length, chunks: 1 }));
}

async function follows(read: ReadFollowing, user: string, author: string): Promise<boolean> {
  for await (const { ids } of readPages((token) => read(user, token))) if (ids.includes(author)) return true;
  return false;
}
