import type { Db } from "../../../src/platform/db/db.js";
import { serveGrpc } from "../../../src/platform/grpc/serve.js";
import { openApi } from "../../support/api.js";
import { openRedis } from "../../support/redis.js";
import { usersProcess } from "../../support/users.js";
import { check, type Row } from "./result.js";

const PAGE = 5_000;
const MB = 1024 * 1024;
const MOST_GROWN_MB = 200;

type Page = { readonly ids: readonly string[]; readonly next: string };

/** Reads a very long follower list page by page over gRPC, against the bare query without a service around it. */
export async function pageThroughFollowers(db: Db, count: number): Promise<Row> {
  await fill(db, count);
  const ceiling = await walk((after) => bare(db, after), count);
  const redis = await openRedis();
  const server = await serveGrpc("127.0.0.1:0", [usersProcess({ db, scripts: redis.scripts }).service], {});
  const api = openApi(`127.0.0.1:${server.port}`);
  const own = await walk(async (page_token) => {
    const page = await api.followers({ user_id: "star", page_size: PAGE, page_token });
    check(page.total_count === count, "each page says how many there are");
    return { ids: page.user_ids, next: page.next_page_token };
  }, count);
  check(own.grownMb < MOST_GROWN_MB, `memory grew by ${own.grownMb.toFixed(0)} MB`);
  api.close();
  await server.close(0);
  await redis.close();
  return {
    name: `GetFollowersList over gRPC, ${count.toLocaleString("en")} followers in pages of ${PAGE.toLocaleString("en")}`,
    ...{ value: own.seconds, unit: "s" },
    peer: { name: "the bare query", value: ceiling.seconds },
    note: `at most ${own.grownMb.toFixed(0)} MB more`,
  };
}

async function fill(db: Db, count: number): Promise<void> {
  await db.query(
    `INSERT INTO users.followers (following_id, follower_id, version, active, delta, changed_at)
     SELECT 'star', 'fan' || lpad(n::text, 8, '0'), 1, true, 1, 0 FROM generate_series(1, $1::int) AS n`,
    [count],
  );
  await db.query("INSERT INTO users.follower_counts VALUES ('star', $1::int, $1::int, 1)", [count]);
  await db.run("ANALYZE users.followers");
}

async function bare(db: Db, after: string): Promise<Page> {
  const rows = await db.query<{ id: string }>(
    "SELECT follower_id AS id FROM users.followers WHERE following_id = 'star' AND follower_id > $1 ORDER BY follower_id LIMIT $2",
    [after, PAGE],
  );
  return { ids: rows.map(({ id }) => id), next: rows.length < PAGE ? "" : (rows.at(-1)?.id ?? "") };
}

/** From the first page to the last; each id must come once, in order. */
async function walk(
  read: (token: string) => Promise<Page>,
  count: number,
): Promise<{ seconds: number; grownMb: number }> {
  const started = performance.now();
  const before = process.memoryUsage().rss;
  let [seen, last, most, token] = [0, "", before, ""];
  do {
    const { ids, next } = await read(token);
    for (const id of ids) {
      check(id > last, "the list is in order");
      last = id;
    }
    seen += ids.length;
    most = Math.max(most, process.memoryUsage().rss);
    token = next;
  } while (token !== "");
  check(seen === count, `${seen} of ${count} followers were read`);
  return { seconds: (performance.now() - started) / 1_000, grownMb: (most - before) / MB };
}
