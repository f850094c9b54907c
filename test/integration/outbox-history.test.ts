import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { pause } from "../../src/kernel/time.js";
import { redrive } from "../../src/operators/dead-letters/redrive.js";
import { createDeadLetterStore, createLogAge } from "../../src/operators/dead-letters/store.nats.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { type NatsBench, openNats } from "../support/nats.js";
import { history, type Kind, OutboxScene } from "../support/outbox-history.js";
import { runs } from "../support/suite.js";

describe.each(DATABASES)("histories of an outbox on $name", ({ name, start }) => {
  let server: DatabaseServer;
  let nats: NatsBench;
  let db: Db;

  beforeAll(async () => {
    [server, nats] = await Promise.all([start(), openNats()]);
    db = await server.newDatabase();
    await migrate(db, [OUTBOX_MIGRATIONS], silent);
  });
  afterAll(() => Promise.all([server.stop(), nats.close()]));

  /** A redrive of everything, which may end between publishing the first dead letter and deleting it. */
  const redriveAll = async (seqs: readonly number[], interrupted: boolean) => {
    const store = createDeadLetterStore(nats.connection);
    let left = interrupted ? 1 : 0;
    const remove = async (seq: number): Promise<void> => {
      if (left-- > 0) throw new AppError("unavailable", "the process has died");
      await store.remove(seq);
    };
    const deps = { publish: nats.publish, logAgeMs: createLogAge(nats.connection), now: Date.now, pause };
    await redrive({ ...deps, store: { ...store, remove }, upstreams: undefined }, seqs, { rate: 100_000 });
  };

  // Invariant 1.
  test("whatever relays die of, each event is in the log or the DLQ once, in the order of its key", async () => {
    const property = fc.asyncProperty(history, fc.boolean(), async (steps, interrupted) => {
      const scene = new OutboxScene(db, nats);
      expect(await scene.run(steps)).toEqual([]);
      const all = [...scene.written].map(([name, one]) => ({ name, ...one }));
      const named = (...kinds: Kind[]) => all.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => name);
      const { log, dead } = await scene.contents();
      for (const key of ["a", "b", "c", "d"]) {
        const published = all.filter((one) => one.key === key && one.kind === "plain").map(({ name }) => name);
        expect(log.filter((name) => name.startsWith(`${key}:`))).toEqual(published);
      }
      expect(dead.map(({ name }) => name).sort()).toEqual(named("odd", "stubborn", "large").sort());
      const refused = dead.filter(({ name }) => named("stubborn").includes(name));
      for (const { deliveries } of refused) expect(deliveries).toBeGreaterThanOrEqual(5);

      const seqs = dead.map(({ seq }) => seq);
      await redriveAll(seqs, interrupted);
      await redriveAll(seqs, false);
      const after = await scene.contents();
      expect(after.log.slice().sort()).toEqual(named("plain", "stubborn").sort());
      expect(after.dead.map(({ name }) => name).sort()).toEqual(named("odd", "large").sort());
    });
    await fc.assert(property, { numRuns: (runs.slow ? 5 : 1) * (name === "PGlite" ? 10 : 40) });
  }, 300_000);

  // Invariant 1.
  test("whatever relays die of, the newest event of each edge is in the log or the DLQ, and none twice or out of order", async () => {
    const property = fc.asyncProperty(history, async (steps) => {
      const scene = new OutboxScene(db, nats, "edges");
      expect(await scene.run(steps)).toEqual([]);
      const { log, dead } = await scene.contents();
      const ended = new Set([...log, ...dead.map(({ name }) => name)]);
      expect(ended.size).toBe(log.length + dead.length);
      for (const key of ["a", "b", "c", "d"]) {
        const written = [...scene.written].filter(([, one]) => one.key === key).map(([name]) => name);
        expect(written.slice(-1).every((name) => ended.has(name))).toBe(true);
        const logged = log.filter((name) => name.startsWith(`${key}:`));
        expect(logged).toEqual(written.filter((name) => logged.includes(name)));
      }
    });
    await fc.assert(property, { numRuns: (runs.slow ? 5 : 1) * (name === "PGlite" ? 10 : 40) });
  }, 300_000);
});
