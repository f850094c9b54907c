import type { Db } from "../../src/platform/db/db.js";
import { createListStore } from "../../src/users/lists.sql.js";
import { check, type Line } from "./measure.js";

const PAGE = 5_000;
const MB = 1024 * 1024;

/** Reads a very long follower list page by page, and what it takes to do so by hand. */
export async function pageThroughFollowers(db: Db, count: number): Promise<Line[]> {
  await db.query(
    `INSERT INTO users.followers (following_id, follower_id, version, active, delta, changed_at)
     SELECT 'star', 'fan' || lpad(n::text, 8, '0'), 1, true, 1, 0 FROM generate_series(1, $1::int) AS n`,
    [count],
  );
  await db.run("ANALYZE users.followers");
  const { ids } = createListStore(db);
  const byHand = (after: string) =>
    db
      .query<{ id: string }>(
        "SELECT follower_id AS id FROM users.followers WHERE following_id = 'star' AND follower_id > $1 ORDER BY follower_id LIMIT $2",
        [after, PAGE],
      )
      .then((rows) => rows.map(({ id }) => id));
  const ceiling = await walk(byHand, count);
  const own = await walk((after) => ids("followers", "star", after, PAGE), count);
  const what = `${count.toLocaleString("en")} followers, in pages of ${PAGE.toLocaleString("en")}`;
  return [
    {
      what,
      value: `${own.seconds.toFixed(2)} s, heap grew by ${own.grownMb.toFixed(0)} MB at most`,
      ratio: `${(own.seconds / ceiling.seconds).toFixed(1)} x the bare query's ${ceiling.seconds.toFixed(2)} s`,
    },
  ];
}

/** From the first page to the last; each id must come once, in order. */
async function walk(
  page: (after: string) => Promise<string[]>,
  count: number,
): Promise<{ seconds: number; grownMb: number }> {
  const started = performance.now();
  const before = process.memoryUsage().heapUsed;
  let [seen, after, most] = [0, "", before];
  for (;;) {
    const ids = await page(after);
    for (const id of ids) {
      check(id > after, "the list is in order");
      after = id;
    }
    seen += ids.length;
    most = Math.max(most, process.memoryUsage().heapUsed);
    if (ids.length < PAGE) break;
  }
  check(seen === count, `${seen} of ${count} followers were read`);
  return { seconds: (performance.now() - started) / 1_000, grownMb: (most - before) / MB };
}
