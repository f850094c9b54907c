import { DAY } from "../../kernel/time.js";
import { type Db, NOW } from "../../platform/db/db.js";
import { createReactionStore } from "../reactions/reactions.sql.js";
import { createRepostStore } from "../reactions/reposts.sql.js";

export interface RemoteReaction {
  readonly uri: string;
  readonly actor_uri: string;
  /** A drop id or the URI of a remote drop. */
  readonly object: string;
  /** The number of an avion.RemoteReactionKind; 0 if it was deleted before it was ever stored. */
  readonly kind: number;
  readonly created_at: number;
  /** The number of an avion.Visibility; 0 if the reaction is for everybody who may see the drop. */
  readonly visibility: number;
  readonly deleted_at: number | null;
}

/** The reactions of one kind by one actor to one drop count as one. */
export type ReactionGroup = Pick<RemoteReaction, "actor_uri" | "object" | "kind">;

/** The states of a reaction, as numbers in the table. */
export const LINKED = { counted: 1, withdrawn: 2, waiting: 3 } as const;

/** The writes belong to the transaction. */
export interface GroupWrites {
  readonly reactions: ReturnType<typeof createReactionStore>;
  readonly reposts: ReturnType<typeof createRepostStore>;
  readonly done: (linked: number) => Promise<void>;
}

export function createRemoteReactionStore(db: Db) {
  const removed = async (sql: string, ...values: readonly unknown[]): Promise<number> =>
    (await db.query(sql, values)).length;
  return {
    /**
     * Resolves to undefined if the actor is deleted or erased. The URI may have been stored, or deleted, before.
     * `isDated`: the actor's server names the time of creation.
     */
    put: async (reaction: Omit<RemoteReaction, "deleted_at">, isDated: boolean) => {
      const { uri, actor_uri, object, kind, created_at, visibility } = reaction;
      const values = [uri, actor_uri, object, kind, created_at, visibility, isDated];
      const [made] = await db.query<RemoteReaction>(PUT, values);
      if (made !== undefined) return { ...made, created: true };
      const [stored] = await db.query<RemoteReaction>(GET, [uri]);
      return stored && { ...stored, created: false };
    },
    /** Leaves a tombstone, unless the URI is that of another actor. Resolves to the reaction that was there. */
    remove: async (uri: string, actor: string): Promise<RemoteReaction | undefined> => {
      const [gone] = await db.query<RemoteReaction>(REMOVE, [uri, actor]);
      return gone?.kind ? gone : undefined;
    },
    /** Takes back all reactions of a group. Resolves to their number. */
    removeGroup: ({ object, kind, actor_uri }: ReactionGroup): Promise<number> =>
      removed(REMOVE_GROUP, object, kind, actor_uri),
    unlinked: (limit: number): Promise<RemoteReaction[]> => db.query(UNLINKED, [limit]),
    /** Returns reactions that came before this remote drop. */
    waitingFor: (object: string, limit: number): Promise<RemoteReaction[]> => db.query(WAITING, [object, limit]),
    get: async (uri: string): Promise<RemoteReaction | undefined> => (await db.query<RemoteReaction>(GET, [uri]))[0],
    /**
     * Locks the reactions of a group, and calls `work` in the same transaction. The caller makes the month of a repost
     * before.
     */
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

/** A reaction without a time that comes within this time of its deletion may be the deleted one, delivered again. */
const FORGOTTEN_MS = DAY;

const COLUMNS = "uri, actor_uri, object, kind, created_at, visibility, deleted_at";

const GET = `SELECT ${COLUMNS} FROM posts.remote_reactions WHERE uri = $1`;

/** If the time was not given, `created_at` is now. */
const isAfter = (known: string): string =>
  `CASE WHEN $7::boolean THEN ${known} < excluded.created_at ELSE r.deleted_at < excluded.created_at - ${FORGOTTEN_MS} END`;

/**
 * A reaction that was taken back may be made again under its URI. The one that was taken back, if it comes again, has
 * its own time; the one that a deletion came before is older than that.
 */
const IS_NEW = `r.deleted_at IS NOT NULL AND CASE r.kind
  WHEN 0 THEN r.actor_uri NOT IN ('', excluded.actor_uri) OR ${isAfter("r.deleted_at")}
  ELSE r.actor_uri = excluded.actor_uri AND r.object = excluded.object AND r.kind = excluded.kind
    AND ${isAfter("r.created_at")}
END`;

const PUT = `
INSERT INTO posts.remote_reactions AS r (uri, actor_uri, object, kind, created_at, visibility)
SELECT $1, $2, $3, $4::smallint, $5::bigint, $6::smallint
WHERE NOT EXISTS (SELECT FROM posts.erased WHERE user_id = $2)
  AND NOT EXISTS (SELECT FROM posts.remote_objects a WHERE a.uri = $2 AND a.deleted_at IS NOT NULL)
ON CONFLICT (uri) DO UPDATE SET actor_uri = excluded.actor_uri, object = excluded.object, kind = excluded.kind,
  created_at = excluded.created_at, visibility = excluded.visibility, deleted_at = NULL, linked = 0
WHERE ${IS_NEW} RETURNING ${COLUMNS}`;

const REMOVE = `
INSERT INTO posts.remote_reactions AS r (uri, actor_uri, kind, deleted_at) SELECT $1, $2, 0, ${NOW}
ON CONFLICT (uri) DO UPDATE SET deleted_at = excluded.deleted_at
WHERE r.deleted_at IS NULL AND r.actor_uri = excluded.actor_uri RETURNING ${COLUMNS}`;

const REMOVE_GROUP = `
UPDATE posts.remote_reactions SET deleted_at = ${NOW} WHERE uri = ANY (ARRAY(
  SELECT uri FROM posts.remote_reactions
  WHERE object = $1 AND kind = $2::smallint AND actor_uri = $3 AND deleted_at IS NULL ORDER BY uri FOR UPDATE
)) RETURNING 1`;

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
