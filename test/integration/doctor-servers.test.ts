import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { databaseChecks, examine, natsChecks, redisChecks } from "../../src/operators/doctor/index.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { Refusal } from "../../src/platform/refusals.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { privateNats, temporaryFolder } from "../support/brokers.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { openRedis, type RedisBench } from "../support/redis.js";

describe("Redis", () => {
  let bench: RedisBench;

  beforeAll(async () => {
    bench = await openRedis();
  });
  afterAll(() => bench.close());

  const faults = async (user = "", path = "") => {
    const url = bench.broker.url.replace("redis://", `redis://${user}`) + path;
    return (await examine(redisChecks([url], false))).filter(({ state }) => state === "fault");
  };

  test("a server that does all that the service needs has no fault", async () => {
    expect(await faults()).toEqual([]);
    expect(await bench.raw.keys("*")).toEqual([]);
  });

  test.each([
    ["-@dangerous", "+info"],
    ["-zadd", "+zadd"],
    ["resetkeys ~timeline:*", "~sse_* ~analysis:*"],
  ])("a user with %s is a fault, with the rights that it lacks", async (taken, named) => {
    await bench.raw.call("ACL", "SETUSER", "ours", "reset", "on", ">secret", "~*", "&*", "+@all", ...taken.split(" "));
    const [fault, ...more] = await faults("ours:secret@");
    expect(more).toEqual([]);
    expect(fault).toMatchObject({ says: expect.stringContaining(named), advice: expect.stringContaining(named) });
  });

  test("a server that takes no writes is a fault, and is not said to be started", async () => {
    const cases = [
      [() => bench.raw.replicaof("127.0.0.1", "1"), () => bench.raw.replicaof("NO", "ONE"), /READONLY/],
      [() => bench.raw.config("SET", "maxmemory", "1"), () => bench.raw.config("SET", "maxmemory", "0"), /OOM/],
    ] as const;
    for (const [set, unset, says] of cases) {
      await set();
      const found = await faults();
      await unset();
      expect(found).toMatchObject([{ says: expect.stringMatching(says) }]);
      expect(found[0]?.advice).not.toMatch(/start Redis/);
    }
  });

  test("a database that is not there is a fault of the address", async () => {
    expect(await faults("", "/99")).toMatchObject([{ advice: expect.stringContaining("correct REDIS_URL") }]);
  });
});

describe("NATS", () => {
  test.each([
    ["max_streams: 3", /max_streams of JetStream is 3/],
    ["max_consumers: 1", /max_consumers of JetStream is 1/],
    ["max_file: 1MB", /max_file of JetStream is 1048576/],
    ["max_bytes_required: true", /max_bytes_required/],
  ])("a limit of the account that a start would meet (%s) is a fault", async (limit, says) => {
    const folder = await temporaryFolder("doctor-nats");
    const file = join(folder, "nats.conf");
    const limits = { max_mem: "-1", max_file: "-1" };
    const text = Object.entries(limits).flatMap(([name, value]) => (limit.startsWith(name) ? [] : `${name}: ${value}`));
    await writeFile(
      file,
      `jetstream {}
       accounts { A { users: [{ user: a, password: a }], jetstream: { ${[...text, limit].join(", ")} } } }
       no_auth_user: a`,
    );
    const broker = await privateNats({ extraArgs: ["-c", file] });
    const findings = await examine(natsChecks({ servers: [broker.url], name: "test" }, 1));
    await broker.stop();
    await rm(folder, { recursive: true, force: true });
    expect(findings.filter(({ state }) => state === "fault")).toMatchObject([{ says: expect.stringMatching(says) }]);
  });
});

const installed = postgresPrograms() === undefined ? describe.skip : describe;

installed("PostgreSQL", () => {
  test("a role without CREATE is a fault, and starts only where no migration is missing", async () => {
    const server = await startPostgres();
    const admin = openPostgres({ url: server.url, poolSize: 1, name: "test" }, silent);
    const url = server.url.replace("timeline@", "bounded@");
    const bounded = openPostgres({ url, poolSize: 1, name: "test" }, silent);
    const faults = async (of = url) => {
      const found = await examine(databaseChecks({ url: of, poolSize: 1, migrations: MIGRATIONS }));
      return found.filter(({ state }) => state === "fault");
    };
    try {
      await admin.run("CREATE ROLE bounded LOGIN");
      expect(await faults()).toMatchObject([{ says: expect.stringContaining("CREATE") }]);
      expect(await migrate(bounded, MIGRATIONS, silent).catch((error: unknown) => error)).toBeInstanceOf(Refusal);
      await migrate(admin, MIGRATIONS, silent);
      await admin.run("GRANT SELECT ON public.avion_migrations TO bounded; GRANT USAGE ON SCHEMA posts TO bounded");
      expect(await faults()).toMatchObject([{ says: expect.stringContaining("CREATE") }]);
      expect(await migrate(bounded, MIGRATIONS, silent)).toEqual([]);
      expect(await faults(server.url)).toEqual([]);
      const missing = server.url.replace(/postgres$/, "nowhere");
      expect(await faults(missing)).toMatchObject([{ advice: expect.stringMatching(/^create the database/) }]);
      await admin.run("ALTER SYSTEM SET default_transaction_read_only = on");
      await admin.run("SELECT pg_reload_conf()");
      expect(await faults(server.url)).toMatchObject([{ says: expect.stringContaining("takes no writes") }]);
    } finally {
      await Promise.all([bounded.close(), admin.close()]);
      await server.stop();
    }
  });
});
