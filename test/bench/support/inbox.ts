import pg from "pg";
import { chunked } from "../../../src/kernel/concurrency.js";
import { check } from "./result.js";

const WORKERS = 8;
const CLAIMED = 64;
const ROWS_A_STATEMENT = 1_000;
const IDLE_MS = 5;

type Change = "create" | "delete";

/** The peer: an inbox table in PostgreSQL that workers fill from an outbox, with no log and no other store. */
export class Inbox {
  readonly landed = new Map<string, number>();
  readonly #pool: pg.Pool;
  #working = true;
  #workers: Promise<void>[] = [];

  constructor(
    url: string,
    private readonly author: string,
  ) {
    this.#pool = new pg.Pool({ connectionString: url, max: 2 * WORKERS });
  }

  async start(followers: readonly string[]): Promise<void> {
    await this.#pool.query(`CREATE TABLE followers (author text, follower text, PRIMARY KEY (author, follower));
      CREATE TABLE posts (id text PRIMARY KEY, author text, created_at bigint, deleted bool DEFAULT false);
      CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, post text, change text);
      CREATE TABLE inbox (owner text, post text, created_at bigint, PRIMARY KEY (owner, post))`);
    await this.#pool.query("INSERT INTO followers SELECT $1, unnest($2::text[])", [this.author, followers]);
    this.#workers = Array.from({ length: WORKERS }, () => this.#work());
  }

  /** Resolves once the change and its outbox row are committed. */
  async change(post: string, change: Change): Promise<void> {
    const statement =
      change === "create"
        ? "INSERT INTO posts (id, author, created_at) VALUES ($1, $3, $4)"
        : "UPDATE posts SET deleted = true WHERE id = $1 AND author = $3 AND created_at <= $4";
    await this.#pool.query(
      `WITH changed AS (${statement} RETURNING id) INSERT INTO outbox (post, change) SELECT id, $2 FROM changed`,
      [post, change, this.author, Date.now()],
    );
  }

  async count(): Promise<number> {
    return Number((await this.#pool.query("SELECT count(*) FROM inbox")).rows[0].count);
  }

  async close(): Promise<void> {
    this.#working = false;
    await Promise.all(this.#workers);
    await this.#pool.end();
  }

  async #work(): Promise<void> {
    while (this.#working) {
      const client = await this.#pool.connect();
      let claimed = 0;
      try {
        await client.query("BEGIN");
        const { rows } = await client.query<{ post: string; change: Change }>(
          `DELETE FROM outbox WHERE id IN (SELECT id FROM outbox ORDER BY id LIMIT ${CLAIMED} FOR UPDATE SKIP LOCKED)
           RETURNING post, change`,
        );
        const followers = rows.length > 0 ? await this.#followers(client) : [];
        for (const { post, change } of rows) await this.#apply(client, { post, change, followers });
        await client.query("COMMIT");
        for (const { post } of rows) this.landed.set(post, Date.now());
        claimed = rows.length;
      } finally {
        client.release();
      }
      if (claimed === 0) await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
    }
  }

  async #followers(client: pg.PoolClient): Promise<string[]> {
    const { rows } = await client.query("SELECT follower FROM followers WHERE author = $1", [this.author]);
    return rows.map(({ follower }) => follower);
  }

  async #apply(
    client: pg.PoolClient,
    { post, change, followers }: { post: string; change: Change; followers: readonly string[] },
  ): Promise<void> {
    let rows = 0;
    for (const some of chunked([...followers].sort(), ROWS_A_STATEMENT)) {
      const statement =
        change === "create"
          ? "INSERT INTO inbox SELECT unnest($1::text[]), $2, $3 ON CONFLICT (owner, post) DO UPDATE SET created_at = excluded.created_at"
          : "DELETE FROM inbox WHERE owner = ANY ($1::text[]) AND post = $2 AND created_at <= $3";
      rows += (await client.query(statement, [some, post, Date.now()])).rowCount ?? 0;
    }
    check(rows === followers.length, `${rows} rows of ${post} were written`);
  }
}
