import { credentials, type ServiceError, status } from "@grpc/grpc-js";
import * as Posts from "../../src/gen/avion/posts.js";
import { PostServiceClient } from "../../src/gen/avion/posts.js";
import { silent } from "../../src/kernel/logger.js";
import { createPageTokens } from "../../src/kernel/paging.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import { type Db, readPageSecret } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { serveGrpc } from "../../src/platform/grpc/serve.js";
import type { PostsDeps } from "../../src/posts/index.js";
import { createPostsService, POSTS_MIGRATIONS } from "../../src/posts/index.js";
import { createPostsStore, type PostsStore } from "../../src/posts/store.sql.js";
import { type Calls, callsOf } from "./grpc.js";
import { unlimited } from "./limits.js";

/** An event in the outbox. */
export type Written = {
  readonly key: string;
  readonly subject: string;
  readonly messageId: string;
  readonly body: Record<string, unknown>;
};

type Fields<Message> = { [Name in keyof Message]?: Message[Name] };
/** The posts service over gRPC, on a database of its own. */
export type PostsHarness = {
  readonly address: string;
  readonly db: Db;
  readonly store: PostsStore;
  readonly client: PostServiceClient;
  readonly call: Calls<typeof Posts.PostServiceService>;
  /** Times the relay was woken. */
  woken(): number;
  /** Events written since the last look, oldest first. */
  written(): Promise<Written[]>;
  /** Counts what waits to be counted, as the event stream would have it done. */
  countAll(): Promise<void>;
  stop(): Promise<void>;
};

export const POSTS_CONFIG: PostsDeps["config"] = {
  maxBodyCharacters: 5_000,
  retentionDays: 0,
  maxImportAgeDays: 3_650,
  limitDrops: undefined,
  limitSameBody: undefined,
  limitReactions: undefined,
  publicUrl: undefined,
  fetch: false,
};

/** Brings a database to the schema, and serves posts from it. */
export async function startPosts(db: Db, options: Partial<PostsDeps> = {}): Promise<PostsHarness> {
  await migrate(db, [OUTBOX_MIGRATIONS, POSTS_MIGRATIONS], silent);
  const store = createPostsStore(db);
  let woken = 0;
  const deps: PostsDeps = {
    store,
    config: POSTS_CONFIG,
    followedAmong: async () => new Set(),
    tokens: createPageTokens(await readPageSecret(db, "posts")),
    now: Date.now,
    wakeRelay: () => {
      woken += 1;
    },
    isFull: () => false,
    limited: unlimited,
    log: silent,
    ...options,
  };
  const server = await serveGrpc("127.0.0.1:0", [createPostsService(deps, silent)], {});
  const address = `127.0.0.1:${server.port}`;
  const client = new PostServiceClient(address, credentials.createInsecure());
  let seen = 0;
  return {
    address,
    db,
    store,
    client,
    call: callsOf(client, Posts.PostServiceService),
    woken: () => woken,
    written: async () => {
      const rows = await db.query<Omit<Written, "body"> & { id: number; body: string }>(
        `SELECT id, key, subject, message_id AS "messageId", body FROM public.outbox
         WHERE source IN ('posts', 'reactions') AND id > $1 ORDER BY id`,
        [seen],
      );
      seen = rows.at(-1)?.id ?? seen;
      return rows.map(({ key, subject, messageId, body }) => ({ key, subject, messageId, body: JSON.parse(body) }));
    },
    countAll: async () => {
      await store.reactions.count(
        await db.query(`SELECT drop_id, kind, actor_id FROM posts.reactions WHERE counted <> active`),
      );
    },
    stop: async () => {
      client.close();
      await server.close(1_000);
    },
  };
}

/** Creates a drop and answers its id. */
export async function post(posts: PostsHarness, fields: Fields<Posts.CreateDropRequest> = {}): Promise<string> {
  const { drop } = await posts.call.createDrop({
    user_id: "ada",
    visibility: Posts.Visibility.PUBLIC,
    body: "hello",
    ...fields,
  });
  return drop?.drop_id as string;
}

/** The status and the words of a call that is refused. */
export async function refusal(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => {
      throw new Error("it was not refused");
    },
    (refused: ServiceError) => refused,
  );
  return `${status[error.code]} ${error.details}`;
}

/** The same database as another process sees it; embedded there is only one. */
export async function asAnotherProcess(db: Db): Promise<Db> {
  const [row] = await db.query<{ version: string; port: string; name: string }>(
    "SELECT version(), current_setting('port') AS port, current_database() AS name",
  );
  if (row === undefined || row.version.includes("PGlite")) return db;
  return openPostgres(
    { url: `postgres://timeline@127.0.0.1:${row.port}/${row.name}`, poolSize: 10, name: "other" },
    silent,
  );
}
