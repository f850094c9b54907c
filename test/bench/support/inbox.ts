import pg from "pg";
import { chunked } from "../../../src/kernel/concurrency.js";
import { check } from "./result.js";

const WORKERS = 8;
const CLAIMED = 64;
const ROWS_A_STATEMENT = 1_000;
const IDLE_MS = 20;

type Change = "create" | "delete";

/** The peer: an inbox table in PostgreSQL that workers fill from an outbox, with no log and no other store. */
export class Inbox {
  readonly landed = new Map<string, number>();
  readonly #pool: pg.Pool;
  #working = true;
  #workers: Promise<void>[] = [];

  constructor(url: string) {
    this.#pool = new pg.Pool({ connectionString: url, max: 2 * WORKERS });
    // `end` resolves before the server has closed its side.
    this.#pool.on("error", () => undefined);
  }

  /** Each follower's inbox holds these posts already, 1 s apart. */
  async start(author: string, followers: readonly string[], held: readonly string[]): Promise<void> {
    await this.#pool.query(`CREATE TABLE followers (author text, follower text, PRIMARY KEY (author, follower));
      CREATE TABLE posts (id text PRIMARY KEY, author text, created_at bigint, deleted bool DEFAULT false);
      CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, post text, author text, change text, claimed bool DEFAULT false);
      CREATE TABLE inbox (owner text, post text, created_at bigint)`);
    await this.#pool.query("INSERT INTO followers SELECT $1, unnest($2::text[])", [author, followers]);
    // In the order in which a service writes them: post by post.
    await this.#pool.query(
      `INSERT INTO inbox SELECT owner, post, $3::bigint + 1000 * n
       FROM unnest($1::text[]) WITH ORDINALITY AS p (post, n) CROSS JOIN unnest($2::text[]) AS f (owner)`,
      [held, followers, Date.now() - 60_000 - 1_000 * held.length],
    );
    await this.#pool.query("ALTER TABLE inbox ADD PRIMARY KEY (owner, post)");
    await this.#pool.query("CREATE INDEX inbox_newest ON inbox (owner, created_at DESC)");
    await this.#pool.query("VACUUM ANALYZE inbox");
    // No checkpoint that the filling is due to falls into the run.
    await this.#pool.query("CHECKPOINT");
    this.#workers = Array.from({ length: WORKERS }, () => this.#work());
  }

  /** Resolves once the change and its outbox row are committed. */
  async change(post: string, change: Change, author: string): Promise<void> {
    const statement =
      change === "create"
        ? "INSERT INTO posts (id, author, created_at) VALUES ($1, $3, $4)"
        : "UPDATE posts SET deleted = true WHERE id = $1 AND author = $3 AND created_at <= $4";
    const text = `WITH changed AS (${statement} RETURNING id, author)
      INSERT INTO outbox (post, author, change) SELECT id, author, $2 FROM changed`;
    await this.#pool.query({ name: `post ${change}`, text, values: [post, change, author, Date.now()] });
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
      const { rows } = await this.#pool.query<{ id: string; post: string; author: string; change: Change }>(
        `UPDATE outbox SET claimed = true
         WHERE id IN (SELECT id FROM outbox WHERE NOT claimed ORDER BY id LIMIT ${CLAIMED} FOR UPDATE SKIP LOCKED)
         RETURNING id, post, author, change`,
      );
      const audiences = new Map<string, Promise<string[]>>();
      for (const { id, post, author, change } of rows) {
        const followers = audiences.get(author) ?? this.#followers(author);
        audiences.set(author, followers);
        await this.#apply({ post, change, followers: await followers });
        await this.#pool.query("DELETE FROM outbox WHERE id = $1", [id]);
        this.landed.set(post, Date.now());
      }
      if (rows.length === 0) await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
    }
  }

  async #followers(author: string): Promise<string[]> {
    const query = "SELECT follower FROM followers WHERE author = $1 ORDER BY follower";
    return (await this.#pool.query(query, [author])).rows.map(({ follower }) => follower);
  }

  async #apply({
    post,
    change,
    followers,
  }: {
    readonly post: string;
    readonly change: Change;
    readonly followers: readonly string[];
  }): Promise<void> {
    let rows = 0;
    for (const some of chunked(followers, ROWS_A_STATEMENT)) {
      const statement =
        change === "create"
          ? {
              name: change,
              text: "INSERT INTO inbox SELECT unnest($1::text[]), $2, $3 ON CONFLICT (owner, post) DO UPDATE SET created_at = excluded.created_at",
            }
          : {
              name: change,
              text: "DELETE FROM inbox WHERE owner = ANY ($1::text[]) AND post = $2 AND created_at <= $3",
            };
      rows += (await this.#pool.query({ ...statement, values: [some, post, Date.now()] })).rowCount ?? 0;
    }
    check(rows === followers.length, `${rows} rows of ${post} were written`);
  }
}
