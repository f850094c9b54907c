import type { DatedFollow, Profile, SetProfileRequest } from "../gen/avion/users.js";
import type { Db } from "../platform/db/db.js";
import type { ListName } from "../state/index.js";
import { APPROVES, writeApproval } from "./approvals.sql.js";
import { erasedConflict, isNotErased } from "./erased.sql.js";
import { REQUESTED } from "./set-edges.sql.js";

export const TABLES = {
  following: {
    edges: "users.followings",
    counts: "users.following_counts",
    count: "following",
    owner: "follower_id",
    other: "following_id",
    since: "changed_at",
  },
  followers: {
    edges: "users.followers",
    counts: "users.follower_counts",
    count: "followers",
    owner: "following_id",
    other: "follower_id",
    since: "coalesce(since, changed_at)",
  },
} as const;
export type Table = (typeof TABLES)[ListName];

const ids = ({ edges, owner, other }: Table): string => `
SELECT ${other} AS id FROM ${edges} WHERE ${owner} = $1 AND ${other} > $2 AND active ORDER BY ${other} LIMIT $3`;

type Dated = Pick<Table, "edges" | "owner" | "other"> & { readonly since: string; readonly stands?: string };

const dated = ({ edges, owner, other, since, stands = "active" }: Dated): string => `
SELECT ${other} AS user_id, ${since} AS since FROM ${edges}
WHERE ${owner} = $1 AND ${stands} AND (${since}, ${other}) < ($2, $3) ORDER BY ${since} DESC, ${other} DESC LIMIT $4`;

/** Lists that are sorted by time. The requests of a list are those to follow its user. */
export type DatedList = ListName | "requests";

const DATED: Readonly<Record<DatedList, string>> = {
  following: dated(TABLES.following),
  followers: dated(TABLES.followers),
  requests: dated({
    edges: TABLES.following.edges,
    owner: "following_id",
    other: "follower_id",
    since: "requested_at",
    stands: REQUESTED,
  }),
};

/** A position in a list that is sorted by time, newest first, and by the bytes of the ids. */
export type DatedPosition = readonly [time: number, id: string];

export const NEWEST: DatedPosition = [Number.MAX_SAFE_INTEGER, ""];

const countOf = ({ counts, count }: Table): string => `SELECT ${count} AS total FROM ${counts} WHERE user_id = $1`;

export type ListStore = ReturnType<typeof createListStore>;

export function createListStore(db: Pick<Db, "query">) {
  return {
    /** The ids are sorted by their bytes; "" is the start. */
    ids: async (list: ListName, user: string, after: string, limit: number): Promise<string[]> =>
      (await db.query<{ id: string }>(ids(TABLES[list]), [user, after, limit])).map(({ id }) => id),
    count: async (list: ListName, user: string): Promise<number> =>
      (await db.query<{ total: number }>(countOf(TABLES[list]), [user]))[0]?.total ?? 0,
  };
}

export type ReadDated = ReturnType<typeof createReadDated>;

export const createReadDated =
  (db: Pick<Db, "query">) =>
  (list: DatedList, user: string, after: DatedPosition, limit: number): Promise<DatedFollow[]> =>
    db.query<DatedFollow>(DATED[list], [user, ...after, limit]);

/** A row that a version without created_at wrote has none. */
const CREATED_AT = "coalesce(p.created_at, p.updated_at)";

const COLUMNS = `p.user_id, p.display_name, p.bio, p.avatar_url, p.updated_at, ${CREATED_AT} AS created_at`;

const READ = `SELECT ${COLUMNS}, ${APPROVES} AS approves_followers FROM users.profiles p`;

const GET = `${READ} WHERE user_id = $1 AND ${isNotErased("$1")}`;

const SET = `
WITH approval AS (${writeApproval("$1", "$5::boolean")})
INSERT INTO users.profiles AS p (user_id, display_name, bio, avatar_url, updated_at, created_at)
SELECT $1, $2, $3, $4, now, now FROM users.now_ms() AS now WHERE ${isNotErased("$1")}
ON CONFLICT (user_id) DO UPDATE
SET display_name = excluded.display_name, bio = excluded.bio, avatar_url = excluded.avatar_url,
  updated_at = GREATEST(p.updated_at, excluded.updated_at), created_at = ${CREATED_AT}
RETURNING ${COLUMNS}, coalesce($5::boolean, ${APPROVES}) AS approves_followers`;

const LIST = `${READ}
WHERE user_id >= $1 AND user_id <= $2 AND user_id > $3 AND ${isNotErased("p.user_id")}
ORDER BY user_id LIMIT $4`;

/** The last id that can begin with a prefix: an id has at most 128 bytes, which are 32 of the last character. */
const lastWith = (prefix: string): string => prefix + "\u{10FFFF}".repeat(32);

export type ProfileStore = ReturnType<typeof createProfileStore>;

export function createProfileStore(db: Pick<Db, "query">) {
  return {
    get: async (user: string): Promise<Profile | undefined> => (await db.query<Profile>(GET, [user]))[0],
    /** @throws AppError `conflict` if the user is erased */
    set: async ({
      user_id,
      display_name,
      bio,
      avatar_url,
      approves_followers,
    }: SetProfileRequest): Promise<Profile> => {
      const values = [user_id, display_name, bio, avatar_url, approves_followers ?? null];
      const [profile] = await db.query<Profile>(SET, values);
      if (profile === undefined) throw erasedConflict("user_id");
      return profile;
    },
    list: (prefix: string, after: string, limit: number): Promise<Profile[]> =>
      db.query<Profile>(LIST, [prefix, lastWith(prefix), after, limit]),
  };
}
