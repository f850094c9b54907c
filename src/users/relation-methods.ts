import type { UsersSource } from "../contracts/outbox.js";
import * as wire from "../gen/avion/users.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { type PageLimits, type PageTokens, readTime } from "../kernel/paging.js";
import type { ListCache } from "../state/index.js";
import { afterChange } from "./follows.js";
import { observeUsers } from "./observe.js";
import { type DatedPosition, NEWEST } from "./reads.sql.js";
import type { RelationPosition, RelationReads } from "./relation-reads.sql.js";
import type { StoredKind } from "./relations.js";
import type { RelationStore } from "./relations.sql.js";

export interface RelationsDeps {
  readonly cache: Pick<ListCache, "discard">;
  readonly maxRelations: number;
  readonly wakeRelay: (source: UsersSource) => void;
  readonly relations: Pick<RelationStore, "set">;
  readonly relationReads: RelationReads;
  readonly bounded: BoundedQueue;
  readonly tokens: PageTokens;
}

const { BLOCK, MUTE } = wire.RelationKind;

const CHANGES = {
  block: { kind: BLOCK, active: true },
  unblock: { kind: BLOCK, active: false },
  mute: { kind: MUTE, active: true },
  unmute: { kind: MUTE, active: false },
} as const;

// Each method throws an AppError: `invalid` naming the field, `exhausted` if a user would have too many relations,
// `conflict` if a user is erased.

export const changeRelations = (deps: RelationsDeps) => ({
  block: setRelation(deps, "block"),
  unblock: setRelation(deps, "unblock"),
  mute: setRelation(deps, "mute"),
  unmute: setRelation(deps, "unmute"),
});

type ChangeRequest = wire.BlockRequest & Partial<wire.MuteRequest>;

const setRelation =
  (deps: RelationsDeps, change: keyof typeof CHANGES) =>
  async ({ expires_at = 0, reposts_only = false, ...request }: ChangeRequest): Promise<wire.MuteResponse> => {
    const user_id = readId("user_id", request.user_id);
    const target_id = readId("target_id", request.target_id);
    if (user_id === target_id) throw invalid("target_id", "must not be the user");
    const options = { expires_at: readTime("expires_at", expires_at), reposts_only };
    const wanted = { user_id, target_id, ...CHANGES[change], ...options };
    const { changed, version, unfollowed } = await deps.relations.set(wanted, deps.maxRelations);
    if (changed) {
      observeUsers.related(change, 1);
      deps.wakeRelay("users");
    }
    if (unfollowed.length > 0) {
      observeUsers.followed("unfollow", unfollowed.length);
      await afterChange(deps, unfollowed);
    }
    return { changed, version };
  };

const PAGES: PageLimits = { default: 1_000, max: 1_000 };
const MAX_IDS = 1_000;
const MAX_USERS = 256;
/** An answer stays below the 4 MiB that a gRPC client takes by default. */
const MAX_HIDDEN_EACH = 100;

export const readRelations = (deps: RelationsDeps) => {
  const { relationReads: reads, bounded, tokens } = deps;
  return {
    async getRelations({ user_id, target_ids }: wire.GetRelationsRequest): Promise<wire.GetRelationsResponse> {
      const user = readId("user_id", user_id);
      if (target_ids.length > MAX_IDS) throw invalid("target_ids", `must have at most ${MAX_IDS} entries`);
      for (const [index, id] of target_ids.entries()) readId(`target_ids.${index}`, id);
      if (target_ids.length === 0) return { relations: [] };
      return { relations: await bounded(() => reads.between(user, target_ids)) };
    },

    async listBlocks(request: wire.ListBlocksRequest): Promise<wire.ListBlocksResponse> {
      const { items, next_page_token } = await listRelations(deps, request, BLOCK);
      return { blocks: items, next_page_token };
    },

    async listMutes(request: wire.ListMutesRequest): Promise<wire.ListMutesResponse> {
      const { items, next_page_token } = await listRelations(deps, request, MUTE);
      return { mutes: items, next_page_token };
    },

    /** The list is sorted by the bytes of the ids, so that paging is exact while it changes. */
    async getHidden(request: wire.GetHiddenRequest): Promise<wire.GetHiddenResponse> {
      const user = readId("user_id", request.user_id);
      const page = tokens.open<[string]>(["hidden", user], request, PAGES);
      const [after] = page.after ?? [""];
      const rows = await bounded(() => reads.hidden(user, after, page.limit));
      const { items, next_page_token } = page.pageOf(rows, ({ target_id }) => [target_id]);
      return { hidden: items, next_page_token };
    },

    async getHiddenOfMany({ user_ids }: wire.GetHiddenOfManyRequest): Promise<wire.GetHiddenOfManyResponse> {
      if (user_ids.length > MAX_USERS) throw invalid("user_ids", `must have at most ${MAX_USERS} entries`);
      const all = new Map(user_ids.map((id, index) => [readId(`user_ids.${index}`, id), [] as wire.HiddenUser[]]));
      if (all.size === 0) return { users: [] };
      const rows = await bounded(() => reads.hiddenOfMany([...all.keys()], MAX_HIDDEN_EACH + 1));
      for (const { user_id, ...target } of rows) all.get(user_id)?.push(target);
      const whole = [...all].filter(([, hidden]) => hidden.length <= MAX_HIDDEN_EACH);
      return { users: whole.map(([user_id, hidden]) => ({ user_id, hidden })) };
    },

    async listRelationChanges(request: wire.ListRelationChangesRequest): Promise<wire.ListRelationChangesResponse> {
      const since = readTime("since", request.since);
      const until = readTime("until", request.until) || Number.MAX_SAFE_INTEGER;
      const list = ["relation-changes", request.since, request.until] as const;
      const page = tokens.open<RelationPosition>(list, request, PAGES);
      const rows = await bounded(() => reads.changes(page.after ?? [since, "", "", 0], until, page.limit));
      const { items, next_page_token } = page.pageOf(rows, (row) => [
        row.changed_at,
        row.user_id,
        row.target_id,
        row.kind,
      ]);
      return { changes: items, next_page_token };
    },
  };
};

async function listRelations(
  { relationReads, bounded, tokens }: RelationsDeps,
  request: wire.ListBlocksRequest,
  kind: StoredKind,
) {
  const user = readId("user_id", request.user_id);
  const page = tokens.open<DatedPosition>(["relations", user, kind], request, PAGES);
  const rows = await bounded(() => relationReads.list(user, kind, page.after ?? NEWEST, page.limit));
  return page.pageOf(rows, ({ created_at, target_id }) => [created_at, target_id]);
}
