import { draftIn, type EventDraft, insertEvents } from "../../contracts/outbox.js";
import type { RemoteObject } from "../../gen/avion/posts.js";
import { MINUTE } from "../../kernel/time.js";
import { type Db, NOW } from "../../platform/db/db.js";
import { mentionsOrNull } from "../drops/drops.sql.js";
import { notErased } from "../drops/erased.sql.js";
import { type Payload, storedPayload } from "../drops/payload.js";
import { REMOTE_COLUMNS, type RemoteReads, type StoredRemoteObject } from "../drops/remote-drops.sql.js";

/** Fields that do not apply to the kind are empty, 0 or unspecified. Times are ms since the epoch. */
export type NewRemoteObject = Omit<RemoteObject, "fetched_at" | "expires_at" | "expired" | keyof Payload> & {
  readonly payload: Payload;
  /** True until the actor's document tells the audience: until then the drop is for followers, and has no event. */
  readonly awaits_actor: boolean;
  /** True if the document decided the audience. */
  readonly by_document: boolean;
  readonly drop_id: string | null;
  /** Of a drop that replies: the author of its parent, if that is stored; else empty. */
  readonly reply_to_author: string;
  /** When the document was changed last, as the document says itself; 0 if it does not. */
  readonly updated_at: number;
};

interface DropsOfDeleted {
  readonly limit: number;
  readonly actorUri?: string;
  readonly eventOf: (uri: string) => EventDraft;
}

/** `get` reads an object by its URI. */
export function createRemoteWrites(db: Db, get: RemoteReads["get"]) {
  return {
    actorsAmong: (uris: readonly string[]): Promise<{ readonly uri: string }[]> => db.query(ACTORS_AMONG, [uris]),
    /** Returns the actor last fetched among those stored with one of these forms of an address. */
    byWebfinger: async (forms: readonly string[]): Promise<StoredRemoteObject | undefined> =>
      (await db.query<StoredRemoteObject>(BY_WEBFINGER, [forms]))[0],
    /** Resolves to undefined if the object or its actor is deleted or another's, or a new one names an erased user. */
    put: async (
      object: NewRemoteObject,
      lifetimeMs: number,
      received: EventDraft | undefined,
    ): Promise<(StoredRemoteObject & { readonly created: boolean }) | undefined> => {
      const { uri, kind, actor_uri, created_at, visibility, recipients, document, public_key, webfinger } = object;
      const row = [uri, kind, actor_uri, created_at, visibility, recipients, document, public_key, webfinger];
      const names = [object.webfinger_type, object.webfinger_href, object.lrdd_template];
      const linking = [object.drop_id, object.reply_to, object.updated_at, object.by_document];
      const more = [mentionsOrNull(object), storedPayload(object.payload), object.reply_to_author !== ""];
      const values = [...row, lifetimeMs, received, object.awaits_actor, ...names, ...linking, ...more];
      return (await db.query<StoredRemoteObject & { created: boolean }>(PUT, values))[0];
    },
    /** Leaves a tombstone, which stays as it is, writes the event of a drop, and notes the erasure of an actor. */
    remove: async (uri: string, deleted: EventDraft, isActor = false): Promise<StoredRemoteObject> => {
      const [removed] = await db.query<StoredRemoteObject>(REMOVE, [uri, deleted, isActor]);
      return removed ?? ((await get(uri)) as StoredRemoteObject);
    },
    /**
     * Resolves to the number of drops. A drop whose statement began before the tombstone of its actor stood may come
     * after it: actors are looked at for a minute.
     */
    removeDropsOfDeleted: async ({ limit, actorUri, eventOf }: DropsOfDeleted): Promise<number> => {
      const drops = await (actorUri === undefined
        ? db.query<{ uri: string }>(DROPS_OF_DELETED, [limit])
        : db.query<{ uri: string }>(DROPS_OF_ONE, [limit, actorUri]));
      if (drops.length === 0) return actorUri === undefined ? (await db.query(DROPS_REMOVED, [limit])).length : 0;
      return (await db.query(DELETE_DROPS, [JSON.stringify(drops.map(({ uri }) => eventOf(uri)))])).length;
    },
    erasuresDue: async (limit: number, uri?: string): Promise<string[]> =>
      (await db.query<{ uri: string }>(ERASURES_DUE, [limit, uri])).map((row) => row.uri),
    erasureAsked: async (uri: string): Promise<void> => void (await db.query(ERASURE_ASKED, [uri])),
    /** Writes the event of the erasure for a users service that has none of its own. */
    announceErasure: async (uri: string, erased: EventDraft): Promise<void> =>
      void (await db.query(ANNOUNCE_ERASURE, [uri, erased])),
  };
}

const ACTORS_AMONG = "SELECT uri FROM posts.remote_objects WHERE uri = ANY ($1::text[]) AND kind = 2";

/** The columns that an older document does not change. */
const NEWEST = [
  ...["document", "public_key", "webfinger", "webfinger_type", "webfinger_href", "lrdd_template", "fetched_at"],
  ...["mentions", "payload"],
];
/** Of two documents of one time the later call counts, and so does one without a time. */
const IS_NEWEST = "excluded.updated_at = 0 OR excluded.updated_at >= o.updated_at";

/** A known drop keeps the fields of its event. Only a new one may be refused for an erased user. */
const PUT = `
WITH o AS (
  INSERT INTO posts.remote_objects AS o
    (uri, kind, actor_uri, created_at, visibility, recipients, document, public_key, webfinger, fetched_at, expires_at,
     awaits_actor, webfinger_type, webfinger_href, lrdd_template, drop_id, reply_to, updated_at, by_document, mentions, payload, parent_known)
  SELECT $1, $2::smallint, $3, $4::bigint, $5::smallint, $6::text[], $7, $8, $9, clock.now, clock.now + $10::bigint,
    $12::boolean, $13, $14, $15, $16::uuid, nullif($17, ''), $18::bigint, $19::boolean,
    (SELECT array_agg(m) FROM unnest($20::text[]) m WHERE ${notErased("m")}), $21::json, $22::boolean
  FROM (SELECT ${NOW} AS now) clock
  WHERE NOT EXISTS (SELECT FROM posts.remote_objects a WHERE a.uri = $3 AND a.deleted_at IS NOT NULL) AND (
    NOT EXISTS (SELECT FROM posts.erased WHERE user_id = ANY ($6::text[] || $3::text || $1::text))
    OR EXISTS (SELECT FROM posts.remote_objects known WHERE known.uri = $1)
  )
  ON CONFLICT (uri) DO UPDATE SET
    ${NEWEST.map((column) => `${column} = CASE WHEN ${IS_NEWEST} THEN excluded.${column} ELSE o.${column} END`).join(", ")},
    expires_at = CASE WHEN ${IS_NEWEST} THEN excluded.expires_at ELSE greatest(o.expires_at, excluded.expires_at) END,
    updated_at = greatest(o.updated_at, excluded.updated_at), fetches = o.fetches + 1
  WHERE o.deleted_at IS NULL AND o.kind = excluded.kind
    AND o.actor_uri IN ('', excluded.actor_uri)
  RETURNING *
), event AS (${insertEvents("posts", draftIn("$11::json"), "o WHERE o.kind = 1 AND o.fetches = 1 AND NOT o.awaits_actor")})
SELECT ${REMOTE_COLUMNS}, o.fetches = 1 AS created FROM o`;

/** A condition: rows name an actor, whose object may never have been stored. */
const isNamed = (actor: string): string => `(
  EXISTS (SELECT FROM posts.remote_objects d WHERE d.actor_uri = ${actor} AND d.kind = 1 AND d.deleted_at IS NULL)
  OR EXISTS (SELECT FROM posts.drops d WHERE d.user_id = ${actor} AND d.deleted_at IS NULL)
  OR EXISTS (SELECT FROM posts.reactions r WHERE r.actor_id = ${actor} AND r.active AND r.kind <> 'reply')
)`;

/** A deletion may arrive before its object: the tombstone keeps the object from being stored. */
const REMOVE = `
WITH o AS (
  INSERT INTO posts.remote_objects AS o (uri, kind, fetched_at, expires_at, deleted_at, erasure_due)
  SELECT $1, 0, clock.now, clock.now, clock.now, $3::boolean OR ${isNamed("$1")} FROM (SELECT ${NOW} AS now) clock
  ON CONFLICT (uri) DO UPDATE SET document = '', public_key = '', webfinger = '', webfinger_type = '',
    webfinger_href = '', lrdd_template = '', recipients = '{}', mentions = NULL, payload = NULL, expires_at = excluded.expires_at,
    deleted_at = coalesce(o.deleted_at, excluded.deleted_at),
    erasure_due = o.kind = 2 OR (o.kind = 0 AND excluded.erasure_due)
  WHERE o.deleted_at IS NULL OR (
    (o.kind = 2 OR (o.kind = 0 AND excluded.erasure_due)) AND NOT EXISTS (SELECT FROM posts.erased WHERE user_id = $1)
  )
  RETURNING *
), event AS (${insertEvents("posts", draftIn("$2::json"), "o WHERE o.kind = 1")})
SELECT ${REMOTE_COLUMNS} FROM o`;

const ERASURES_DUE = `
SELECT uri FROM posts.remote_objects WHERE erasure_due AND ($2::text IS NULL OR uri = $2)
ORDER BY deleted_at, uri LIMIT $1`;

const ERASURE_ASKED = "UPDATE posts.remote_objects SET erasure_due = false WHERE uri = $1 AND erasure_due RETURNING 1";

const ANNOUNCE_ERASURE = `
WITH asked AS (${ERASURE_ASKED}) ${insertEvents("posts", draftIn("$2::json"), "asked")}`;

/** The condition of the index. */
const DROPS_LEFT = "kind <> 1 AND deleted_at IS NOT NULL AND NOT drops_removed";

const dropsOf = (actors: string): string => `
SELECT d.uri FROM (
  SELECT uri FROM posts.remote_objects WHERE ${actors}
) a CROSS JOIN LATERAL (
  SELECT uri FROM posts.remote_objects WHERE actor_uri = a.uri AND kind = 1 AND deleted_at IS NULL
  ORDER BY created_at DESC, uri DESC LIMIT $1
) d LIMIT $1`;

const DROPS_OF_DELETED = dropsOf(`${DROPS_LEFT} ORDER BY deleted_at, uri LIMIT $1`);
/** Runs also if no drops were left: a process of an older version may have stored one since. */
const DROPS_OF_ONE = dropsOf("uri = $2 AND kind <> 1 AND deleted_at IS NOT NULL");

/** A write that did not see the marker of a stranger may have named them: then they are erased after all. */
const DROPS_REMOVED = `
UPDATE posts.remote_objects a SET drops_removed = true,
  erasure_due = a.erasure_due OR (EXISTS (SELECT FROM posts.erased e WHERE e.user_id = a.uri) AND ${isNamed("a.uri")})
WHERE uri IN (
  SELECT uri FROM posts.remote_objects
  WHERE ${DROPS_LEFT} AND deleted_at < (SELECT ${NOW} - ${MINUTE}) ORDER BY deleted_at, uri LIMIT $1
) AND NOT EXISTS (
  SELECT FROM posts.remote_objects d WHERE d.actor_uri = a.uri AND d.kind = 1 AND d.deleted_at IS NULL
) RETURNING 1`;

/** One of several processes deletes a drop, and writes its event in the same statement. */
const DELETE_DROPS = `
WITH e AS (
  SELECT draft, draft ->> 'key' AS uri FROM json_array_elements($1::json) AS draft
), picked AS (
  SELECT uri FROM posts.remote_objects
  WHERE uri = ANY (ARRAY(SELECT e.uri COLLATE "C" FROM e)) AND deleted_at IS NULL ORDER BY uri FOR UPDATE
), gone AS (
  UPDATE posts.remote_objects o SET document = '', recipients = '{}', mentions = NULL, payload = NULL, expires_at = clock.now, deleted_at = clock.now
  FROM picked, (SELECT ${NOW} AS now) clock WHERE o.uri = picked.uri RETURNING o.uri, o.actor_uri
), event AS (${insertEvents("posts", { ...draftIn("e.draft"), owner: "gone.actor_uri" }, "gone JOIN e ON e.uri = gone.uri")})
SELECT uri FROM gone`;

const BY_WEBFINGER = `
SELECT ${REMOTE_COLUMNS} FROM posts.remote_objects o
WHERE webfinger = ANY ($1::text[]) AND kind = 2 AND deleted_at IS NULL
ORDER BY fetched_at DESC LIMIT 1`;
