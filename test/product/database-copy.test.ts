import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import pg from "pg";
import { openPglite } from "../../src/platform/db/pglite.js";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { startCommand } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { startStack } from "../support/stack.js";

const ROLES = "users,posts,analysis,rewards,bridge,fanout,api";
const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const DAY = 86_400_000;

const TABLES = `SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'`;
const digestOf = (table: string): string =>
  `SELECT coalesce(md5(string_agg(r::text, E'\\n' ORDER BY r::text)), '') AS digest, count(*)::int AS rows
   FROM (SELECT row_to_json(t) AS r FROM ${table} t) all_rows`;

type Query = <Row>(sql: string) => Promise<Row[]>;

/** The content of every table, as a digest and a number of rows. */
async function contentsOf(query: Query): Promise<Record<string, unknown>> {
  const contents: Record<string, unknown> = {};
  for (const { name } of await query<{ name: string }>(TABLES))
    if (name !== "public.avion_migrations") contents[name] = (await query<object>(digestOf(name)))[0];
  return contents;
}

const ifPostgres = postgresPrograms() === undefined ? test.skip : test;

ifPostgres(
  "an installation moves from the embedded database to PostgreSQL, and goes on there",
  async () => {
    const stack = await startStack({ service: false });
    try {
      const folder = await temporaryFolder("move");
      stack.defer(() => rm(folder, { recursive: true, force: true }));
      const server = await startPostgres();
      stack.defer(() => server.stop());
      const embedded = { ...OWN, TIMELINE_DATA_DIR: folder };
      const moved = { ...embedded, DATABASE_URL: server.url };
      const before = await stack.start({ roles: ROLES, env: embedded });
      const api = openApi(before.grpcAddress);
      stack.defer(() => api.close());
      await api.follow({ follower_id: "ada", following_id: "bob" });
      // A drop of another month has partitions of its own.
      const old = await api.post("bob", { created_at: Date.now() - 70 * DAY, body: 'Fünf "Wörter"\n\\n 日本' });
      const drop = await api.post("bob", { summary: "s", recipients: [] });
      const gone = await api.post("bob");
      await api.deleteDrop({ drop_id: gone.drop_id, user_id: "bob" });
      await api.like({ drop_id: drop.drop_id, user_id: "ada" });
      await becomes(async () =>
        expect((await api.counts({ drop_ids: [drop.drop_id] })).counts).toMatchObject([{ likes: 1 }]),
      );
      const open = startCommand(stack, ["database", "copy"], moved);
      expect((await open.exited).code).toBe(1);
      expect(open.errors()).toMatch(/is open in process \d+/);
      await before.stop();

      const source = await openPglite({ folder: join(folder, "pglite") });
      const contents = await contentsOf((sql) => source.query(sql));
      await source.close();
      const copy = startCommand(stack, ["database", "copy", "--json"], moved);
      expect({ ...(await copy.exited), errors: copy.errors() }).toMatchObject({ code: 0 });
      expect(JSON.parse(copy.output())).toEqual({ tables: Object.keys(contents).length, rows: expect.any(Number) });
      const client = new pg.Client(server.url);
      await client.connect();
      const copied = await contentsOf(async (sql) => (await client.query(sql)).rows);
      await client.end();
      expect(copied).toEqual(contents);

      const again = startCommand(stack, ["database", "copy"], moved);
      expect((await again.exited).code).toBe(1);
      expect(again.errors()).toMatch(/holds rows already; name an empty database/);

      const after = await stack.start({ roles: ROLES, env: moved });
      const there = openApi(after.grpcAddress);
      stack.defer(() => there.close());
      expect((await there.dropsOf({ user_id: "bob", limit: 10, max_id: "", before: 0 })).drops).toMatchObject([
        { drop_id: drop.drop_id },
        { drop_id: old.drop_id },
      ]);
      const fresh = await there.post("bob");
      await eventually(
        async () => (await stack.redis.zscore("timeline:home:ada", fresh.drop_id)) !== null,
        "a new drop reaches the follower",
      );
    } catch (error) {
      throw stack.explain(error);
    } finally {
      await stack.stop();
    }
  },
  180_000,
);
