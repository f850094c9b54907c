import { v7 } from "uuid";
import { MAX_LISTS, MAX_MEMBERS, membersLimit } from "../contracts/lists.js";
import type * as wire from "../gen/avion/lists.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { invalid } from "../kernel/errors.js";
import { readId, readText } from "../kernel/fields.js";
import type { PageLimits, PageTokens } from "../kernel/paging.js";
import type { Limit } from "../kernel/variables.js";
import type { Limited } from "../state/index.js";
import type { MemberListStore, OwnedList } from "./member-lists.sql.js";
import { observeUsers } from "./observe.js";
import { type DatedPosition, NEWEST } from "./reads.sql.js";

const MAX_TITLE = 100;
/** All recipients of a direct drop, and its author. */
const MAX_OWNERS = 1_001;
const LIST_PAGES: PageLimits = { default: MAX_LISTS, max: MAX_LISTS };
const MEMBER_PAGES: PageLimits = { default: MAX_MEMBERS, max: MAX_MEMBERS };
const FOUND_PAGES: PageLimits = { default: 1_000, max: 5_000 };

export interface MemberListsDeps {
  readonly memberLists: MemberListStore;
  /** Removes the timeline of a list from Redis. */
  readonly forgetTimeline: (list: string) => Promise<unknown>;
  readonly limitFollows: Limit | undefined;
  readonly limited: Limited;
  readonly wakeRelay: (source: "users" | "edges") => void;
  readonly bounded: BoundedQueue;
  readonly tokens: PageTokens;
}

// Each method throws an AppError: `invalid` naming the field, `notfound` if the user has no such list, `exhausted` at a
// limit, `conflict` if a user is erased.

const readList = ({ user_id, list_id }: OwnedList): OwnedList => ({
  user_id: readId("user_id", user_id),
  list_id: readId("list_id", list_id),
});

function readTitle(title: string): string {
  if (title.trim() === "") throw invalid("title", "must not be empty");
  return readText("title", title, MAX_TITLE);
}

const readIds = (field: string, ids: readonly string[], most: number): readonly string[] => {
  if (ids.length > most) throw invalid(field, `must have at most ${most} entries`);
  for (const [index, id] of ids.entries()) readId(`${field}.${index}`, id);
  return ids;
};

/** A member who is named twice counts once. */
const readMembers = (ids: readonly string[]): string[] => [...new Set(readIds("member_ids", ids, MAX_MEMBERS))];

export const changeMemberLists = (deps: MemberListsDeps) => {
  const { memberLists: store, limited, wakeRelay, bounded, forgetTimeline } = deps;
  const limit = membersLimit(deps.limitFollows);
  const changedMembers = (changed: number, done: "listed" | "unlisted"): { changed: number } => {
    observeUsers.followed(done, changed);
    if (changed > 0) wakeRelay("users");
    return { changed };
  };
  return {
    async createList({ user_id, title }: wire.CreateListRequest): Promise<wire.CreateListResponse> {
      const user = readId("user_id", user_id);
      return { list: await store.create({ user_id: user, list_id: v7() }, readTitle(title)) };
    },

    async renameList(request: wire.RenameListRequest): Promise<wire.RenameListResponse> {
      return { list: await store.rename(readList(request), readTitle(request.title)) };
    },

    /** Removes the timeline before the list, so that none stays if Redis is unavailable, and again after it. */
    async deleteList(request: wire.DeleteListRequest): Promise<wire.DeleteListResponse> {
      const list = readList(request);
      await store.get(list);
      await forgetTimeline(list.list_id);
      await store.remove(list);
      await forgetTimeline(list.list_id);
      return {};
    },

    async addListMembers(request: wire.AddListMembersRequest): Promise<wire.AddListMembersResponse> {
      const list = readList(request);
      const members = readMembers(request.member_ids);
      await store.get(list);
      if (members.length === 0) return { changed: 0 };
      // Each new member makes fan-out read the member's followers and lists anew. So does each removal of one who was added.
      const missing = async () => members.length - (await bounded(() => store.membersAmong(list, members)));
      const count = Math.max(1, limit ? await missing() : 1);
      const changed = await limited([{ kind: "members", user: list.user_id, limit, count }], {
        write: () => store.add(list, members),
        changed: (added) => added,
        changesNothing: async () => (await missing()) === 0,
      });
      return changedMembers(changed, "listed");
    },

    async removeListMembers(request: wire.RemoveListMembersRequest): Promise<wire.RemoveListMembersResponse> {
      const changed = await store.removeMembers(readList(request), readMembers(request.member_ids));
      return changedMembers(changed, "unlisted");
    },
  };
};

export const readMemberLists = ({ memberLists: store, bounded, tokens }: MemberListsDeps) => ({
  async getList(request: wire.GetListRequest): Promise<wire.GetListResponse> {
    const list = readList(request);
    return { list: await bounded(() => store.get(list)) };
  },

  async listLists(request: wire.ListListsRequest): Promise<wire.ListListsResponse> {
    const user = readId("user_id", request.user_id);
    const page = tokens.open<DatedPosition>(["lists", user], request, LIST_PAGES);
    const rows = await bounded(() => store.list(user, page.after ?? NEWEST, page.limit));
    const { items, next_page_token } = page.pageOf(rows, ({ created_at, list_id }) => [created_at, list_id]);
    return { lists: items, next_page_token };
  },

  async listMembers(request: wire.ListMembersRequest): Promise<wire.ListMembersResponse> {
    const list = readList(request);
    const page = tokens.open<[string]>(["list-members", list.list_id], request, MEMBER_PAGES);
    const [after] = page.after ?? [""];
    const ids = await bounded(() => store.members(list, after, page.limit));
    const { items, next_page_token } = page.pageOf(ids, (id) => [id]);
    return { member_ids: items, next_page_token };
  },

  async getListReader(request: wire.GetListReaderRequest): Promise<wire.GetListReaderResponse> {
    const list_id = readId("list_id", request.list_id);
    const isOfAnybody = request.user_id === "";
    const user_id = isOfAnybody ? await bounded(() => store.ownerOf(list_id)) : readId("user_id", request.user_id);
    // One user who reads all their lists does not hold up the reads of others.
    const members = await bounded(() => store.reader({ user_id, list_id }), user_id);
    return {
      owner_id: user_id,
      member_ids: members.map(({ id }) => id),
      followed_ids: members.flatMap(({ id, followed }) => (followed ? id : [])),
    };
  },

  async findLists(request: wire.FindListsRequest): Promise<wire.FindListsResponse> {
    const member = readId("member_id", request.member_id);
    const owners = readIds("owner_ids", request.owner_ids, MAX_OWNERS);
    const page = tokens.open<[string]>(["lists-with", member], request, FOUND_PAGES);
    const [after] = page.after ?? [""];
    const ids = await bounded(() => store.find(member, owners, after, page.limit));
    const { items, next_page_token } = page.pageOf(ids, (id) => [id]);
    return { list_ids: items, next_page_token };
  },
});
