import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { becomes } from "../support/eventually.js";
import { type Scraped, startScraping } from "../support/scrape.js";

let metrics: Scraped;
let server: DatabaseServer;

beforeAll(async () => {
  metrics = await startScraping();
  server = await (DATABASES[0] as (typeof DATABASES)[number]).start();
});
afterAll(async () => {
  await server.stop();
  await metrics.close();
});

test("the age of the oldest row is exported, and shows no old value while the database does not answer", async () => {
  const { backlogMeasurements: backlogFigures } = await import("../../src/outbox/observe.js");
  const { OUTBOX_MIGRATIONS } = await import("../../src/outbox/index.js");
  const { createOutboxStore } = await import("../../src/outbox/store.sql.js");
  const { startSampling } = await import("../../src/telemetry/samples.js");
  const db = await server.newDatabase();
  await migrate(db, [OUTBOX_MIGRATIONS], silent);
  const write = (key: string, ageMs: number) =>
    db.query(
      `INSERT INTO public.outbox (source, key, subject, message_id, body, created_at)
       VALUES ('posts', $1, 'drops.created', $1, '{}', (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2::bigint)`,
      [key, ageMs],
    );
  const store = createOutboxStore(db, "posts");
  const sampling = startSampling(
    [{ name: "outbox posts", take: async () => backlogFigures(await store.backlog(), "posts") }],
    {
      everyMs: 50,
      log: silent,
    },
  );
  const shows = (name: string, labels: Record<string, string>, value: unknown) =>
    becomes(async () => expect(await metrics.value(name, labels)).toEqual(value));
  const source = { source: "posts" };
  try {
    await shows("timeline_outbox_oldest_seconds", source, 0);
    await write("young", 1_000);
    await write("old", 90_000);
    await shows("timeline_outbox_waiting", source, 2);
    const oldest = await metrics.value("timeline_outbox_oldest_seconds", source);
    expect(oldest).toBeGreaterThanOrEqual(90);
    expect(oldest).toBeLessThan(120);

    await db.run("ALTER TABLE public.outbox RENAME TO elsewhere");
    await shows("timeline_outbox_oldest_seconds", source, Number.NaN);
    await shows("timeline_outbox_waiting", source, Number.NaN);
    await shows("timeline_sample_up", { sample: "outbox posts" }, 0);
    await db.run("ALTER TABLE public.elsewhere RENAME TO outbox");
    await shows("timeline_outbox_waiting", source, 2);
  } finally {
    await sampling.close();
  }
});
