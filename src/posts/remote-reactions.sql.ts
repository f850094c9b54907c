import { type Db, NOW } from "../platform/db/db.js";
import { createReactionStore } from "./reactions.sql.js";
import { createRepostStore } from "./reposts.sql.js";

export interface RemoteReaction {
  readonly uri: string;
  readonly actor_uri: string;
  /** A drop id or the URI of a remote drop. */
  readonly object: string;
  /** The number of an avion.RemoteReactionKind; 0 where it was deleted before it was ever stored. */
  readonly kind: number;
  readonly created_at: number;
  readonly deleted_at: number | null;
}

/** The reactions of one kind by one actor to one drop count as one. */
export type ReactionGroup = Pick<RemoteReaction, "actor_uri" | "object" | "kind">;

/** Their numbers in the table. */
export const LINKED = { counted: 1, withdrawn: 2, waiting: 3 } as const;

/** They belong to the transaction. */
export interface GroupWrites {
  readonly reactions: ReturnType<typeof createReactionStore>;
  readonly reposts: ReturnType<typeof createRepostStore>;
  readonly done: (linked: number) => Promise<void>;
}

export function createRemoteReactionStore(db: Db) {
  const removed = async (sql: string, ...values: readonly unknown[]): Promise<number> =>
    (await db.query(sql, values)).length;
  return {
    /** Resolves to undefined where the actor is deleted or erased. The URI may have been stored, or deleted, before. */
    put: async (reaction: Omit<RemoteReaction, "deleted_at">) => {
      const { uri, actor_uri, object, kind, created_at } = reaction;
      const values = [uri, actor_uri, object, kind, created_at];
      const [made] = await db.query<RemoteReaction>(PUT, values);
      if (made !== undefined) return { ...made, created: true };
      const [stored] = await db.query<RemoteReaction>(GET, [uri]);
      return stored && { ...stored, created: false };
    },
    /** Leaves a tombstone. Resolves to whether a reaction was there. */
    remove: async (uri: string): Promise<RemoteReaction | undefined> => {
      const [gone] = await db.query<RemoteReaction>(REMOVE, [uri]);
      return gone?.kind ? gone : undefined;
    },
    unlinked: (limit: number): Promise<RemoteReaction[]> => db.query(UNLINKED, [limit]),
    /** Returns reactions that came before this remote drop. */
    waitingFor: (object: string, limit: number): Promise<RemoteReaction[]> => db.query(WAITING, [object, limit]),
    get: async (uri: string): Promise<RemoteReaction | undefined> => (await db.query<RemoteReaction>(GET, [uri]))[0],
    /** Works on a group that no other process works on meanwhile. The month of a repost is made before. */
    withGroup: (
      { object, kind, actor_uri }: ReactionGroup,
      work: (living: readonly RemoteReaction[], writes: GroupWrites) => Promise<void>,
    ): Promise<void> =>
      db.transaction(async (queries) => {
        const group = await queries.query<RemoteReaction>(GROUP, [object, kind, actor_uri]);
        const writes = {
          reactions: createReactionStore(queries),
          reposts: createRepostStore(queries, { make: async () => false }),
          done: async (linked: number) => void (await queries.query(DONE, [object, kind, actor_uri, linked])),
        };
        await work(
          group.filter(({ deleted_at }) => deleted_at === null),
          writes,
        );
      }),
    removeOfActor: (actor: string, limit: number): Promise<number> => removed(REMOVE_OF_ACTOR, actor, limit),
    removeOfObjects: (objects: readonly string[], limit: number): Promise<number> =>
      removed(REMOVE_OF_OBJECTS, objects, limit),
    pruneDeleted: (deletedForMs: number, limit: number): Promise<number> => removed(PRUNE, deletedForMs, limit),
  };
}

const COLUMNS = "uri, actor_uri, object, kind, created_at, deleted_at";

const GET = `SELECT ${COLUMNS} FROM posts.remote_reactions WHERE uri = $1`;

const PUT = `
INSERT INTO posts.remote_reactions (uri, actor_uri, object, kind, created_at)
SELECT $1, $2, $3, $4::smallint, $5::bigint
WHERE NOT EXISTS (SELECT FROM posts.erased WHERE user_id = $2)
  AND NOT EXISTS (SELECT FROM posts.remote_objects a WHERE a.uri = $2 AND a.deleted_at IS NOT NULL)
ON CONFLICT DO NOTHING RETURNING ${COLUMNS}`;

const REMOVE = `
INSERT INTO posts.remote_reactions AS r (uri, kind, deleted_at) SELECT $1, 0, ${NOW}
ON CONFLICT (uri) DO UPDATE SET deleted_at = excluded.deleted_at WHERE r.deleted_at IS NULL RETURNING ${COLUMNS}`;

const UNLINKED = `
SELECT ${COLUMNS} FROM posts.remote_reactions
WHERE kind <> 0 AND CASE WHEN deleted_at IS NULL THEN linked NOT IN (1, 3) ELSE linked <> 2 END ORDER BY uri LIMIT $1`;

const WAITING = `
SELECT ${COLUMNS} FROM posts.remote_reactions WHERE object = $1 AND deleted_at IS NULL AND linked <> 1 LIMIT $2`;

const GROUP = `
SELECT ${COLUMNS} FROM posts.remote_reactions WHERE object = $1 AND kind = $2::smallint AND actor_uri = $3
ORDER BY uri FOR UPDATE`;

const DONE = `
UPDATE posts.remote_reactions SET linked = CASE WHEN deleted_at IS NULL THEN $4::smallint ELSE ${LINKED.withdrawn} END
WHERE object = $1 AND kind = $2::smallint AND actor_uri = $3`;

const removeWhere = (condition: string): string => `
DELETE FROM posts.remote_reactions WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM posts.remote_reactions WHERE ${condition} LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING 1`;

const REMOVE_OF_ACTOR = removeWhere("actor_uri = $1");
const REMOVE_OF_OBJECTS = removeWhere("object = ANY ($1::text[])");
const PRUNE = removeWhere(`deleted_at < (SELECT ${NOW} - $1::bigint)`);
