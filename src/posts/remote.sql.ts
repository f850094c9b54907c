import type { Db } from "../platform/db/db.js";
import type { ListedDrop, Position, RemoteStore, StoredRemoteObject } from "./ports.js";
import { NOW, Parameters } from "./statement.js";

/** Foreign objects. */
export function createRemoteStore(db: Db): RemoteStore {
  const one = async (sql: string, parameter: string): Promise<StoredRemoteObject | undefined> =>
    (await db.query<StoredRemoteObject>(sql, [parameter]))[0];
  const get = (uri: string): Promise<StoredRemoteObject | undefined> =>
    one(`SELECT ${COLUMNS} FROM posts.remote_objects o WHERE uri = $1`, uri);
  return {
    get,
    byWebfinger: (webfinger) => one(BY_WEBFINGER, webfinger),
    put: async (object, lifetimeMs, received) => {
      const parameters = new Parameters();
      const texts = [object.document, object.publicKey, object.webfinger];
      const row = [
        parameters.add(object.uri, "text"),
        parameters.add(object.kind, "smallint"),
        parameters.add(object.actorUri, "text"),
        parameters.add(object.createdAt, "bigint"),
        parameters.add(object.visibility, "smallint"),
        parameters.add(object.recipients, "text[]"),
        ...texts.map((text) => parameters.add(text, "text")),
        "clock.now",
        `clock.now + ${parameters.add(lifetimeMs, "bigint")}`,
      ];
      const text = `
        WITH o AS (${upsert(row)})
        ${received === undefined ? "" : `, told AS (${parameters.insertEvent(received, "o WHERE fetches = 1")})`}
        SELECT ${COLUMNS}, o.fetches = 1 AS created FROM o`;
      return (await db.query<StoredRemoteObject & { created: boolean }>(text, parameters.values))[0];
    },
    remove: async (uri, deleted) => {
      const parameters = new Parameters();
      const gone = bury(parameters.add(uri, "text"));
      const text = `
        WITH o AS (${gone}), told AS (${parameters.insertEvent(deleted, "o WHERE kind = 1")})
        SELECT ${COLUMNS} FROM o`;
      const [buried] = await db.query<StoredRemoteObject>(text, parameters.values);
      return buried ?? ((await get(uri)) as StoredRemoteObject);
    },
    byActor: async (actorUri, below, limit) => {
      const { createdAt, id } = below ?? NEWEST;
      const rows = await db.query<Omit<ListedDrop, "userId">>(BY_ACTOR, [actorUri, createdAt, id, limit]);
      return rows.map((row) => ({ ...row, userId: actorUri }));
    },
  };
}

const NEWEST: Position = { createdAt: Number.MAX_SAFE_INTEGER, id: "" };

const COLUMNS = `o.uri, o.kind, o.actor_uri AS "actorUri", o.created_at AS "createdAt", o.visibility, o.recipients, o.document,
  o.public_key AS "publicKey", o.webfinger, o.fetched_at AS "fetchedAt", o.expires_at AS "expiresAt",
  o.expires_at <= ${NOW} AS expired, o.deleted_at AS "deletedAt"`;

/** What is dead stays dead; a known drop keeps its actor, who may see it, and the earlier of two times. */
const upsert = (row: readonly string[]): string => `
  INSERT INTO posts.remote_objects AS o
    (uri, kind, actor_uri, created_at, visibility, recipients, document, public_key, webfinger, fetched_at, expires_at)
  SELECT ${row.join(", ")} FROM (SELECT ${NOW} AS now) clock
  ON CONFLICT (uri) DO UPDATE SET
    actor_uri = CASE WHEN o.actor_uri = '' THEN excluded.actor_uri ELSE o.actor_uri END,
    created_at = least(o.created_at, excluded.created_at),
    document = excluded.document, public_key = excluded.public_key, webfinger = excluded.webfinger,
    fetched_at = excluded.fetched_at, expires_at = excluded.expires_at, fetches = o.fetches + 1
  WHERE o.deleted_at IS NULL AND o.kind = excluded.kind
    AND (o.actor_uri = '' OR excluded.actor_uri = '' OR o.actor_uri = excluded.actor_uri)
  RETURNING *`;

/** A deletion may come before what it deletes: it then is kept for it. */
const bury = (uri: string): string => `
  INSERT INTO posts.remote_objects AS o (uri, kind, fetched_at, expires_at, deleted_at)
  SELECT ${uri}, 0, clock.now, clock.now, clock.now FROM (SELECT ${NOW} AS now) clock
  ON CONFLICT (uri) DO UPDATE SET document = '', public_key = '', webfinger = '', recipients = '{}',
    expires_at = excluded.expires_at, deleted_at = excluded.deleted_at
  WHERE o.deleted_at IS NULL
  RETURNING *`;

const BY_WEBFINGER = `
SELECT ${COLUMNS} FROM posts.remote_objects o
WHERE webfinger = $1 AND kind = 2 AND deleted_at IS NULL
ORDER BY fetched_at DESC LIMIT 1`;

const BY_ACTOR = `
SELECT uri AS "dropId", created_at AS "createdAt", visibility, recipients FROM posts.remote_objects
WHERE actor_uri = $1 AND kind = 1 AND deleted_at IS NULL AND (created_at, uri) < ($2::bigint, $3::text)
ORDER BY created_at DESC, uri DESC LIMIT $4`;
