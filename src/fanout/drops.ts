import type { DropCreated, DropDeleted, DropEvent, RemoteDropReceived } from "../contracts/events.js";
import { type Fences, writeUnlessDeleted } from "../contracts/fences.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import type { Change } from "./apply.js";
import type { Plan } from "./plan.js";
import type { TimelineWriter } from "./store.redis.js";

interface DropDeps {
  readonly fences: Fences;
  readonly writer: TimelineWriter;
  readonly plan: (plan: Plan) => Promise<void>;
}

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
  const { drop_id, created_at, user_id, visibility } = drop;
  if (visibility === "public") await addShared(deps, ["local", "global"], { drop: drop_id, score: created_at });
  const change = { action: "add", event: "drop_created", drop_id, created_at, user_id, ...admission } as const;
  await deps.plan({ ...change, includeAuthor: true, recipients: recipientsOf(drop) });
}

async function received(deps: DropDeps, drop: RemoteDropReceived, admission: Admission): Promise<void> {
  const { drop_id, created_at, user_id, visibility } = drop;
  if (user_id !== undefined) await deps.writer.rememberActor(drop_id, user_id);
  if (visibility === "public") await addShared(deps, ["global"], { drop: drop_id, score: created_at });
  const change = { action: "add", event: "ap_drop_received", drop_id, created_at, user_id, ...admission } as const;
  await deps.plan({ ...change, includeAuthor: false, recipients: recipientsOf(drop) });
}

const recipientsOf = ({ visibility, recipients = [] }: DropCreated | RemoteDropReceived) =>
  visibility === "direct" ? recipients : undefined;

async function addShared(
  { fences, writer }: DropDeps,
  timelines: readonly ("local" | "global")[],
  entry: TimelineEntry,
): Promise<void> {
  if (entry.score < fences.retentionStart()) return;
  await writeUnlessDeleted([entry.drop], {
    write: () => writer.addShared(timelines, entry),
    tombstonedAmong: fences.tombstonedAmong,
    remove: () => writer.removeShared(entry.drop),
  });
}

async function deleted(deps: DropDeps, { drop_id, user_id }: DropDeleted, admission: Admission): Promise<void> {
  const { fences, writer } = deps;
  const created_at = admission.admitted_at;
  await fences.recordTombstone(drop_id, created_at);
  const author = user_id ?? (await writer.actorOf(drop_id));
  await writer.rememberCreation(drop_id, author);
  await writer.removeShared(drop_id);
  const change = { action: "remove", event: "drop_deleted", drop_id, created_at, user_id: author } as const;
  await deps.plan({ ...change, ...admission, includeAuthor: true });
}
