import { type CreateDropRequest, type CreateDropResponse, Visibility } from "../gen/avion/posts.js";
import { AppError, invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { DAY } from "../kernel/time.js";
import { isForEverybody, type PostsDeps, requireKept } from "./deps.js";
import { createDropIds, createdAtOf, importedId } from "./drop-ids.js";
import type { NewDrop } from "./drops.sql.js";
import { dropCreated, engagementChanged } from "./events.js";
import { presentDetails } from "./present.js";
import { isUri, readAnyDropId, readRecipients, readTexts, readVisibility, readWholeNumber } from "./request.js";

/** Creates a drop, or answers the drop that the same key has made before. */
export function createDrop(deps: PostsDeps) {
  const nextId = createDropIds();
  return async (request: CreateDropRequest): Promise<CreateDropResponse> => {
    const drop = readDraft(request, deps, nextId);
    if (request.created_at !== 0) await requireKept(request.created_at, deps);
    const idempotencyKey = request.idempotency_key === "" ? "" : readId("idempotency_key", request.idempotency_key);
    const counts = drop.replyTo !== "" && !isUri(drop.replyTo) && isForEverybody(drop);
    const replied = counts
      ? engagementChanged({ dropId: drop.replyTo, kind: "reply", actorId: drop.dropId })
      : undefined;
    const made = await deps.store.drops.create(drop, { idempotencyKey, created: dropCreated(drop), replied });
    if (!made) return { drop: await findMade(deps, drop, idempotencyKey) };
    deps.wakeRelay();
    deps.observe.changed("created");
    const stored = { ...drop, revision: 1, updatedAt: createdAtOf(drop.dropId), deletedAt: null };
    return { drop: presentDetails(stored) };
  };
}

function readDraft(request: CreateDropRequest, deps: PostsDeps, nextId: (now: number) => string): NewDrop {
  if (request.recipients.length > 0 && request.visibility !== Visibility.DIRECT)
    throw invalid("recipients", "are for direct drops");
  const draft = {
    userId: readId("user_id", request.user_id),
    visibility: readVisibility(request.visibility),
    recipients: readRecipients(request.recipients, deps.limits.maxRecipients),
    replyTo: request.reply_to === "" ? "" : readAnyDropId("reply_to", request.reply_to),
    ...readTexts(request, deps.limits),
  };
  const createdAt = readCreatedAt(request.created_at, deps);
  return { dropId: createdAt === 0 ? nextId(deps.now()) : importedId(createdAt), ...draft };
}

function readCreatedAt(createdAt: number, deps: PostsDeps): number {
  readWholeNumber("created_at", createdAt);
  if (createdAt === 0) return createdAt;
  const { maxImportAgeDays } = deps.limits;
  if (createdAt > deps.now()) throw invalid("created_at", "is ahead of now");
  if (createdAt < deps.now() - maxImportAgeDays * DAY)
    throw invalid("created_at", `is more than ${maxImportAgeDays} days ago`);
  return createdAt;
}

/** For a request that made no drop: its key has made one before, or the drop replied to does not exist. */
async function findMade({ store }: PostsDeps, drop: NewDrop, key: string) {
  const before = key === "" ? undefined : await store.drops.dropOfKey(drop.userId, key);
  if (before === undefined) {
    if (drop.replyTo !== "") throw invalid("reply_to", "there is no such drop");
    throw new AppError("unavailable", "idempotency_key: expired during the request");
  }
  const [made] = await store.drops.byIds([before]);
  if (made === undefined || made.deletedAt !== null)
    throw new AppError("conflict", "idempotency_key: its drop is deleted");
  return presentDetails(made);
}
