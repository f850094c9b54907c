import { setTimeout as delay } from "node:timers/promises";
import type { Db } from "../../src/platform/db/db.js";
import { createForget } from "../../src/posts/erasure.js";
import { createPostsStore, type PostsStore } from "../../src/posts/store.sql.js";

/** Forgets a user as the role posts does. */
export async function forget(
  store: PostsStore,
  user: string,
  options: { readonly stopping?: AbortSignal; readonly left?: (rows: number) => void } = {},
): Promise<void> {
  const { stopping = new AbortController().signal, left } = options;
  const forgetUser = createForget({ store, now: Date.now, wakeRelay: () => undefined });
  await forgetUser(user, { stopping, left: async (rows) => left?.(rows) });
}

/** A store whose database ends the work at the n-th call and all that follow, as the end of its process does. */
export function dyingStore(db: Db, calls: number): PostsStore {
  let left = calls;
  const dying =
    <Asked extends unknown[], Answer>(ask: (...asked: Asked) => Promise<Answer>) =>
    async (...asked: Asked): Promise<Answer> => {
      if (left-- <= 0) throw new Error("the process died");
      return ask(...asked);
    };
  return createPostsStore({
    ...db,
    query: dying(db.query) as Db["query"],
    transaction: dying(db.transaction) as Db["transaction"],
  });
}

/** Returns the rows of the service's tables that name a user anywhere, without the mark. */
export async function rowsNaming(db: Db, user: string): Promise<string[]> {
  const tables = await db.query<{ name: string }>(
    `SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind = 'r' AND (n.nspname = 'posts' OR c.oid = 'public.outbox'::regclass) AND c.relname <> 'erased'`,
  );
  const found: string[] = [];
  for (const { name } of tables) {
    const rows = await db.query<{ row: string }>(`SELECT t::text AS row FROM ${name} t WHERE strpos(t::text, $1) > 0`, [
      user,
    ]);
    found.push(...rows.map(({ row }) => `${name}: ${row}`));
  }
  return found;
}

export interface Told {
  readonly source: string;
  readonly key: string;
  readonly subject: string;
  readonly body: string;
}

/** Publishes what is in the outbox every few ms, as relays do. */
export function startRelayOf(db: Db, everyMs = 20) {
  const told: Told[] = [];
  const stopping = new AbortController();
  const publish = async (): Promise<void> => {
    const rows = await db.query<Told>(
      // RETURNING promises no order.
      `WITH published AS (
         UPDATE public.outbox SET published_at = 1 WHERE id IN (
           SELECT id FROM public.outbox WHERE published_at IS NULL ORDER BY id LIMIT 5000
         ) RETURNING id, source, key, subject, body
       ) SELECT source, key, subject, body FROM published ORDER BY id`,
    );
    told.push(...rows);
  };
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await publish();
      await delay(everyMs);
    }
  };
  const running = run();
  return {
    told,
    close: async (): Promise<Told[]> => {
      stopping.abort();
      await running;
      await publish();
      return told;
    },
  };
}
