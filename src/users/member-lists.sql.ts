import type { EdgeEvent } from "../contracts/events.js";
import { listReader, MAX_LISTS, MAX_MEMBERS } from "../contracts/lists.js";
import { draftIn, draftOf, type EventDraft, insertEvents } from "../contracts/outbox.js";
import type { List } from "../gen/avion/lists.js";
import { AppError } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import { type Db, NOW, type Queries } from "../platform/db/db.js";
import { LOCK_TIMEOUT_MS } from "../platform/db/shared-writes.js";
import { traceHeaders } from "../telemetry/spans.js";
import { erasedConflict, isNotErased } from "./erased.sql.js";
import type { DatedPosition } from "./reads.sql.js";

/** The first key of the advisory locks is the bytes of "list": a user makes one list at a time. */
const LOCKS = 0x6c_69_73_74;
const LOCK_USER = `SELECT set_config('lock_timeout', $1, true), pg_advisory_xact_lock(${LOCKS}, hashtext($2))`;

const COLUMNS = "list_id, title, created_at";

const COUNT = "SELECT count(*) AS held FROM users.lists WHERE user_id = $1";

const CREATE = `
INSERT INTO users.lists (list_id, user_id, title, created_at) SELECT $1, $2, $3, ${NOW} WHERE ${isNotErased("$2")}
RETURNING ${COLUMNS}`;

const RENAME = `UPDATE users.lists SET title = $3 WHERE user_id = $1 AND list_id = $2 RETURNING ${COLUMNS}`;

const GET = `SELECT ${COLUMNS} FROM users.lists WHERE user_id = $1 AND list_id = $2`;

const OWNER = "SELECT user_id AS id FROM users.lists WHERE list_id = $1";

const LIST = `
SELECT ${COLUMNS} FROM users.lists WHERE user_id = $1 AND (created_at, list_id) < ($2, $3)
ORDER BY created_at DESC, list_id DESC LIMIT $4`;

const DELETE_MEMBERS = "DELETE FROM users.list_members WHERE list_id = $1";

const DELETE = "DELETE FROM users.lists WHERE user_id = $1 AND list_id = $2";

const LOCK_LIST = `
SELECT set_config('lock_timeout', $3, true), list_id FROM users.lists WHERE user_id = $1 AND list_id = $2 FOR UPDATE`;

/** Erased users among the members, by their place. */
const ERASED = `
SELECT given.n - 1 AS index FROM unnest($1::text[]) WITH ORDINALITY AS given (member_id, n)
JOIN users.erasures x ON x.user_id = given.member_id ORDER BY given.n LIMIT 1`;

const ADD = `
INSERT INTO users.list_members (list_id, member_id, user_id)
SELECT $2, member_id, $1 FROM unnest($3::text[]) AS given (member_id) WHERE ${isNotErased("given.member_id", "$1")}
ON CONFLICT DO NOTHING RETURNING member_id, nextval('users.list_versions') AS version`;

const REMOVE = `
DELETE FROM users.list_members WHERE user_id = $1 AND list_id = $2 AND member_id = ANY ($3::text[])
RETURNING member_id, nextval('users.list_versions') AS version`;

const COUNT_MEMBERS = "SELECT count(*) AS held FROM users.list_members WHERE list_id = $1";

const EVENTS = `
WITH w AS (SELECT value AS event FROM json_array_elements($1::json))
${insertEvents("users", draftIn("w.event"), "w")}`;

const MEMBERS_AMONG = `
SELECT count(*) AS held FROM users.list_members m WHERE user_id = $1 AND list_id = $2 AND member_id = ANY ($3::text[])`;

const MEMBERS = `
SELECT member_id AS id FROM users.list_members WHERE list_id = $1 AND member_id > $2 ORDER BY member_id LIMIT $3`;

const READER = `
SELECT m.member_id AS id, coalesce(f.active, false) AS followed
FROM users.list_members m LEFT JOIN LATERAL (
  SELECT active FROM users.followings f WHERE f.follower_id = $1 AND f.following_id = m.member_id OFFSET 0
) f ON true
WHERE m.list_id = $2 AND m.user_id = $1 ORDER BY m.member_id`;

const FIND = `
SELECT list_id AS id FROM users.list_members WHERE member_id = $1 AND list_id > $2 ORDER BY list_id LIMIT $3`;

/** The lists are found before they are sorted: to save the sort, the database would read all lists of the member. */
const FIND_OF_OWNERS = `
WITH found AS MATERIALIZED (
  SELECT list_id FROM users.list_members WHERE member_id = $1 AND user_id = ANY ($4::text[]) AND list_id > $2
)
SELECT list_id AS id FROM found ORDER BY list_id LIMIT $3`;

export interface OwnedList {
  readonly user_id: string;
  readonly list_id: string;
}

interface ChangedMember {
  readonly member_id: string;
  readonly version: number;
}

const noList = () => new AppError("notfound", "list_id: is no list of the user");

const tooManyMembers = () => new AppError("exhausted", `member_ids: a list can have at most ${MAX_MEMBERS} members`);

/** A list follows its members: the event is that of a follow. Events of a pair are published in their order. */
function eventOf({ list_id }: OwnedList, name: EdgeEvent["name"], { member_id, version }: ChangedMember): EventDraft {
  const [reader, member] = [listReader(list_id), encodeId(member_id)];
  const event = { name, payload: { follower_id: reader, following_id: member_id, version: String(version) } } as const;
  const traceparent = traceHeaders()["traceparent"];
  return draftOf(event, { owner: member, key: `list:${encodeId(reader)}:${member}`, traceparent });
}

async function writeEvents(queries: Queries, list: OwnedList, name: EdgeEvent["name"], changed: ChangedMember[]) {
  const events = changed.map((member) => eventOf(list, name, member));
  if (events.length > 0) await queries.query(EVENTS, [JSON.stringify(events)]);
}

const lockList = async (queries: Queries, { user_id, list_id }: OwnedList): Promise<void> => {
  const locked = await queries.query(LOCK_LIST, [user_id, list_id, String(LOCK_TIMEOUT_MS.alone)]);
  if (locked.length === 0) throw noList();
};

const countOf = async (queries: Queries, sql: string, params: readonly unknown[]): Promise<number> =>
  (await queries.query<{ held: number }>(sql, params))[0]?.held ?? 0;

export type MemberListStore = ReturnType<typeof createMemberListStore>;

/** Methods about one list throw an AppError `notfound` if the user has no such list. */
export function createMemberListStore(db: Db) {
  const get = async ({ user_id, list_id }: OwnedList): Promise<List> => {
    const [list] = await db.query<List>(GET, [user_id, list_id]);
    if (list === undefined) throw noList();
    return list;
  };
  const idsOf = async (sql: string, params: readonly unknown[]): Promise<string[]> =>
    (await db.query<{ id: string }>(sql, params)).map(({ id }) => id);
  return {
    get,
    /** @throws AppError `exhausted` if the user has too many lists, `conflict` if the user is erased */
    create: ({ user_id, list_id }: OwnedList, title: string): Promise<List> =>
      db.transaction(async (queries) => {
        await queries.query(LOCK_USER, [String(LOCK_TIMEOUT_MS.alone), user_id]);
        if ((await countOf(queries, COUNT, [user_id])) >= MAX_LISTS)
          throw new AppError("exhausted", `user_id: a user can have at most ${MAX_LISTS} lists`);
        const [list] = await queries.query<List>(CREATE, [list_id, user_id, title]);
        if (list === undefined) throw erasedConflict("user_id");
        return list;
      }),
    async rename({ user_id, list_id }: OwnedList, title: string): Promise<List> {
      const [list] = await db.query<List>(RENAME, [user_id, list_id, title]);
      if (list === undefined) throw noList();
      return list;
    },
    /** One statement would not see the members who were added while it waited for the lock. */
    remove: (list: OwnedList): Promise<void> =>
      db.transaction(async (queries) => {
        await lockList(queries, list);
        await queries.query(DELETE_MEMBERS, [list.list_id]);
        await queries.query(DELETE, [list.user_id, list.list_id]);
      }),
    /**
     * Adds members, all or none. Resolves to the number of those who were none before.
     *
     * @throws AppError `exhausted` if the list would have too many members, `conflict` if one of them is erased
     */
    add: (list: OwnedList, members: readonly string[]): Promise<number> =>
      db.transaction(async (queries) => {
        await lockList(queries, list);
        const [erased] = await queries.query<{ index: number }>(ERASED, [members]);
        if (erased) throw erasedConflict(`member_ids.${erased.index}`);
        const added = await queries.query<ChangedMember>(ADD, [list.user_id, list.list_id, members]);
        if (added.length > 0 && (await countOf(queries, COUNT_MEMBERS, [list.list_id])) > MAX_MEMBERS)
          throw tooManyMembers();
        await writeEvents(queries, list, "user_followed", added);
        return added.length;
      }),
    /** Resolves to the number of those who were members before. */
    removeMembers: (list: OwnedList, members: readonly string[]): Promise<number> =>
      db.transaction(async (queries) => {
        await lockList(queries, list);
        const removed = await queries.query<ChangedMember>(REMOVE, [list.user_id, list.list_id, members]);
        await writeEvents(queries, list, "user_unfollowed", removed);
        return removed.length;
      }),
    /** Resolves to how many of these users are members. */
    membersAmong: ({ user_id, list_id }: OwnedList, members: readonly string[]): Promise<number> =>
      countOf(db, MEMBERS_AMONG, [user_id, list_id, members]),
    /** Newest first. */
    list: (user: string, after: DatedPosition, limit: number): Promise<List[]> =>
      db.query<List>(LIST, [user, ...after, limit]),
    /** The members are sorted by the bytes of their ids; "" is the start. */
    async members(list: OwnedList, after: string, limit: number): Promise<string[]> {
      await get(list);
      return idsOf(MEMBERS, [list.list_id, after, limit]);
    },
    async ownerOf(list_id: string): Promise<string> {
      const [owner] = await idsOf(OWNER, [list_id]);
      if (owner === undefined) throw noList();
      return owner;
    },
    /** Resolves to all members, and whether the owner follows them. */
    async reader(list: OwnedList): Promise<{ readonly id: string; readonly followed: boolean }[]> {
      const rows = db.query<{ id: string; followed: boolean }>(READER, [list.user_id, list.list_id]);
      const [members] = await Promise.all([rows, get(list)]);
      return members;
    },
    /** Lists of which a user is a member; without `owners` those of all. */
    find: (member: string, owners: readonly string[], after: string, limit: number): Promise<string[]> =>
      owners.length === 0 ? idsOf(FIND, [member, after, limit]) : idsOf(FIND_OF_OWNERS, [member, after, limit, owners]),
  };
}
