import type { EventDraft } from "../../contracts/outbox.js";
import * as wire from "../../gen/avion/posts.js";
import { AppError, invalid } from "../../kernel/errors.js";
import { readId } from "../../kernel/fields.js";
import { fingerprint } from "../../kernel/ids.js";
import { readTime } from "../../kernel/paging.js";
import { DAY } from "../../kernel/time.js";
import type { Use } from "../../state/index.js";
import type { DropsDeps } from "./deps.js";
import { presentDetails, presentTombstone, refuseWhileFull, requireKept, storedDrop } from "./drops.js";
import type { NewDrop, StoredDrop } from "./drops.sql.js";
import { refuseErased } from "./erased.sql.js";
import { dropCreated, dropDeleted, dropEdited, engagementChanged } from "./events.js";
import { createdAtOf, importedId } from "./ids.js";
import { observePosts } from "./observe.js";
import { type Payload, readMentions, readPayload } from "./payload.js";
import {
  isUri,
  readAnyDropId,
  readDropId,
  readRecipients,
  readTexts,
  readVisibility,
  readWholeNumber,
} from "./request.js";
import { localDropOr } from "./uris.js";
import { isBetweenBlocked, isForEverybody, judged } from "./visibility.js";

const MAX_RECIPIENTS = 20;

type Draft = NewDrop & Content;

/** Drops do not import reactions: these functions are passed in. */
export interface DropReactions {
  /** Resolves to the id under which the drop that is replied to has reactions, if it exists. */
  readonly parentKey: (replyTo: string) => Promise<string | undefined>;
  readonly withdrawShare: (share: {
    readonly original: string;
    readonly sharer: string;
    readonly repostId: string;
  }) => Promise<unknown>;
  readonly removeReposts: (original: string) => Promise<void>;
}

export function writeDrops(deps: DropsDeps, nextId: (now: number) => string, reactions: DropReactions) {
  const { store, wakeRelay } = deps;
  const wakeRelays = (reaction: EventDraft | undefined): void => {
    wakeRelay("posts");
    if (reaction !== undefined) wakeRelay("reactions");
  };
  const remove = async (drop: StoredDrop): Promise<void> => {
    const { drop_id, user_id, original_key: original } = drop;
    if (original !== "") return void (await reactions.withdrawShare({ original, sharer: user_id, repostId: drop_id }));
    const parent = await reactions.parentKey(drop.reply_to);
    const withdrawn = replyOf(drop, parent);
    const isRemoved = await store.drops.remove(drop, { deleted: dropDeleted(drop_id, user_id), withdrawn, parent });
    if (!isRemoved) return;
    wakeRelays(withdrawn);
    observePosts.changed("deleted");
  };
  return {
    async createDrop(request: wire.CreateDropRequest): Promise<wire.CreateDropResponse> {
      refuseWhileFull(deps);
      const draft = readDraft(request, deps, nextId);
      if (request.created_at !== 0) await requireKept(request.created_at, deps);
      const idempotencyKey = request.idempotency_key === "" ? "" : readId("idempotency_key", request.idempotency_key);
      const parentKey = await reactions.parentKey(draft.reply_to);
      const parent = await parentOf(deps, draft);
      const drop = { ...draft, reply_to_author: parent?.user_id ?? "" };
      const replied = isForEverybody(drop) ? replyOf(drop, parentKey) : undefined;
      const isRefused = await isBlockedFrom(deps, drop.user_id, parent);
      // A remote parent that comes from now on would not count the reply, and nothing has been asked about its author.
      const isOrphan = draft.reply_to !== "" && parentKey === undefined;
      const made =
        !isRefused &&
        !isOrphan &&
        (await deps.limited(request.created_at === 0 ? usesOfDrop(drop, deps.config) : [], {
          write: () => store.drops.create({ drop, idempotencyKey, created: dropCreated(drop), replied, parentKey }),
          changed: (created) => created,
          changesNothing: async () =>
            idempotencyKey !== "" && (await store.drops.dropOfKey(drop.user_id, idempotencyKey)) !== undefined,
        }));
      if (!made) return { drop: await findMade(deps, { drop, key: idempotencyKey, isRefused }) };
      wakeRelays(replied);
      observePosts.changed("created");
      const repost = { repost_of: "", original_key: "", repost_author: "" };
      const stored = { ...drop, revision: 1, updated_at: createdAtOf(drop.drop_id), ...repost, deleted_at: null };
      return { drop: presentDetails(stored) };
    },

    async editDrop(request: wire.EditDropRequest): Promise<wire.EditDropResponse> {
      const edit = {
        drop_id: readDropId("drop_id", request.drop_id),
        user_id: readId("user_id", request.user_id),
        expected_revision: readWholeNumber("expected_revision", request.expected_revision),
        ...readContent(request, deps.config),
      };
      const edited = await store.drops.edit({ ...edit, edited: dropEdited(edit) });
      if (edited === undefined) throw await refusalReason(deps, edit);
      wakeRelay("posts");
      observePosts.changed("edited");
      return { drop: presentDetails(edited) };
    },

    /** Deletes a drop and its reposts, and answers the tombstone, also of a drop that was deleted before. */
    async deleteDrop(request: wire.DeleteDropRequest): Promise<wire.DeleteDropResponse> {
      const dropId = readDropId("drop_id", request.drop_id);
      const userId = readId("user_id", request.user_id);
      await refuseErased(deps, userId);
      const drop = await storedDrop(deps, dropId);
      if (drop.user_id !== userId) throw invalid("user_id", "is not the author");
      if (drop.deleted_at === null) await remove(drop);
      // An earlier call may have ended before the last of them.
      if (drop.repost_of === "") await reactions.removeReposts(dropId);
      return { tombstone: presentTombstone(await storedDrop(deps, dropId)) };
    },
  };
}

/** A new drop counts as one of its author, and as one with this text for this audience, whatever it replies to. */
function usesOfDrop(drop: NewDrop, { limitDrops, limitSameBody }: DropsDeps["config"]): Use[] {
  const { user_id: user, visibility, recipients, summary, body, attachments = [] } = drop;
  // Drops without a text differ by their attachments.
  const files = body === "" && summary === "" ? attachments.map(({ url }) => url) : [];
  const text = fingerprint(JSON.stringify([visibility, [...recipients].sort(), summary, body, ...files]));
  return [
    { kind: "drops", user, limit: limitDrops },
    { kind: "same-body", user, subject: text, limit: limitSameBody },
  ];
}

const replyOf = ({ drop_id }: Pick<NewDrop, "drop_id">, parent: string | undefined) =>
  parent === undefined ? undefined : engagementChanged({ drop_id: parent, kind: "reply", actor_id: drop_id });

function readDraft(request: wire.CreateDropRequest, deps: DropsDeps, nextId: (now: number) => string): Draft {
  if (request.recipients.length > 0 && request.visibility !== wire.Visibility.DIRECT)
    throw invalid("recipients", "may be set for direct drops only");
  const draft = {
    user_id: readId("user_id", request.user_id),
    visibility: readVisibility(request.visibility),
    recipients: readRecipients(request.recipients, MAX_RECIPIENTS),
    reply_to: request.reply_to === "" ? "" : readAnyDropId("reply_to", localDropOr(request.reply_to, deps.config)),
    ...readContent(request, deps.config),
  };
  const createdAt = readCreatedAt(request.created_at, deps);
  return { drop_id: createdAt === 0 ? nextId(deps.now()) : importedId(createdAt), ...draft };
}

type Content = Pick<NewDrop, "summary" | "body"> & Payload & { mentions: string[] };

function readContent(request: Content, { maxBodyCharacters }: DropsDeps["config"]): Content {
  const texts = readTexts(request, maxBodyCharacters);
  return { ...texts, mentions: readMentions(request.mentions), ...readPayload(request) };
}

function readCreatedAt(createdAt: number, { now, config }: DropsDeps): number {
  readTime("created_at", createdAt);
  if (createdAt === 0) return createdAt;
  if (createdAt > now()) throw invalid("created_at", "is in the future");
  if (createdAt < now() - config.maxImportAgeDays * DAY)
    throw invalid("created_at", `is more than ${config.maxImportAgeDays} days ago`);
  return createdAt;
}

type Parent = Pick<StoredDrop, "user_id"> & { readonly repost_author?: string };

async function parentOf({ store }: DropsDeps, { reply_to }: Draft): Promise<Parent | undefined> {
  if (reply_to === "") return undefined;
  const { drops, remote } = store;
  const parents = isUri(reply_to) ? (await remote.dropsByUris([reply_to])).map(judged) : await drops.byIds([reply_to]);
  return parents[0];
}

async function isBlockedFrom(deps: DropsDeps, user: string, parent: Parent | undefined): Promise<boolean> {
  if (parent === undefined || deps.relationsTo === undefined) return false;
  await refuseErased(deps, user);
  return isBetweenBlocked(deps, { field: "user_id", user }, parent);
}

/** A request makes no drop if its key has made one, or the drop replied to is missing, or a block stands between. */
async function findMade(
  { store }: DropsDeps,
  { drop, key, isRefused }: { readonly drop: NewDrop; readonly key: string; readonly isRefused: boolean },
): Promise<wire.DropDetails> {
  const before = key === "" ? undefined : await store.drops.dropOfKey(drop.user_id, key);
  if (before === undefined) {
    if (isRefused) throw new AppError("notfound", "reply_to: there is no such drop");
    if (drop.reply_to !== "") throw await lacksParent(store, drop.reply_to);
    throw new AppError("unavailable", "idempotency_key: expired during the request");
  }
  const [made] = await store.drops.byIds([before]);
  if (made === undefined || made.deleted_at !== null)
    throw new AppError("conflict", "idempotency_key: its drop is deleted");
  return presentDetails(made);
}

async function lacksParent(store: DropsDeps["store"], replyTo: string): Promise<AppError> {
  const [parent] = isUri(replyTo) ? [] : await store.drops.byIds([replyTo]);
  if (parent !== undefined && parent.repost_of !== "")
    return new AppError("conflict", "reply_to: the drop is a repost");
  return invalid("reply_to", "there is no such drop");
}

async function refusalReason(deps: DropsDeps, edit: Pick<NewDrop, "drop_id" | "user_id">): Promise<AppError> {
  await refuseErased(deps, edit.user_id);
  const drop = await storedDrop(deps, edit.drop_id);
  if (drop.user_id !== edit.user_id) return invalid("user_id", "is not the author");
  if (drop.deleted_at !== null) return new AppError("conflict", "drop_id: the drop is deleted");
  if (drop.repost_of !== "") return new AppError("conflict", "drop_id: the drop is a repost");
  return new AppError("conflict", `expected_revision: the drop is at revision ${drop.revision}`);
}
