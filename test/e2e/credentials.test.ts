import { once } from "node:events";
import { chownSync, copyFileSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import pg from "pg";
import { serveGrpc } from "../../src/platform/grpc/serve.js";
import { type Broker, freePort, startNats } from "../../src/sandbox/brokers/index.js";
import { privateNats, privateRedis, temporaryFolder, useRedisWithTls } from "../support/brokers.js";
import { type Certificates, makeCertificates } from "../support/certificates.js";
import { becomes, eventually } from "../support/eventually.js";
import { addGuardedRole, postgresPrograms, startPostgres } from "../support/postgres.js";
import { launchService, type Service, startService } from "../support/service.js";

const PASSWORD = "pass:word/?#@,%";
const WRONG = "hunter2marker";
const escaped = encodeURIComponent(PASSWORD);

let certificates: Certificates;
let redis: Broker;
let nats: Broker;
let folder: string;
let conf: string;
let tlsPort: number;

const users = (password: string): string =>
  `authorization { users: [{ user: "our user", password: "${password}" }] }\n`;

beforeAll(async () => {
  useRedisWithTls();
  certificates = makeCertificates();
  folder = await temporaryFolder("credentials");
  conf = join(folder, "nats.conf");
  const { good } = certificates;
  writeFileSync(
    conf,
    `${users(PASSWORD)}tls { cert_file: "${good.cert}", key_file: "${good.key}" }\nallow_non_tls: true\n`,
  );
  tlsPort = await freePort();
  const tls = ["--tls-port", `${tlsPort}`, "--tls-cert-file", good.cert, "--tls-key-file", good.key];
  redis = await privateRedis({
    extraArgs: ["--requirepass", PASSWORD, ...tls, "--tls-ca-cert-file", certificates.ca, "--tls-auth-clients", "no"],
  });
  nats = await privateNats({ extraArgs: ["-c", conf] });
});

afterAll(async () => {
  await nats?.stop();
  await redis?.stop();
  certificates?.remove();
  if (folder) await rm(folder, { recursive: true });
});

const redisUrl = (password = escaped): string => `redis://:${password}@127.0.0.1:${redis.port}`;
const natsUrl = (password = escaped, protocol = "nats"): string =>
  `${protocol}://our%20user:${password}@127.0.0.1:${nats.port}`;

const options = (env: Readonly<Record<string, string>>) => ({
  redisUrl: redisUrl(),
  natsUrl: natsUrl(),
  usersAddress: "127.0.0.1:1",
  postsAddress: "127.0.0.1:1",
  roles: "bridge",
  env: { TIMELINE_NATS_TLS: certificates.trusted, ...env },
});

/** Starts a service that is turned away; its start ends, with one line that says why and no secret. */
async function expectEnd(env: Readonly<Record<string, string>>, why: RegExp): Promise<void> {
  const service = await launchService(options(env));
  const timer = setTimeout(() => service.signal("SIGKILL"), 45_000);
  const { code } = await service.exited;
  clearTimeout(timer);
  expect({ code, errors: service.errors() }).toMatchObject({ code: 1, errors: expect.stringMatching(why) });
  expect(service.errors().match(/cannot start/g)).toHaveLength(1);
  for (const secret of [WRONG, PASSWORD, escaped]) expect(service.output() + service.errors()).not.toContain(secret);
}

async function withService(env: Readonly<Record<string, string>>, work: (service: Service) => Promise<void>) {
  const service = await startService(options(env));
  try {
    await work(service);
  } finally {
    await service.stop();
  }
}

const readiness = async ({ httpUrl }: Service): Promise<string> => {
  const answer = await fetch(`${httpUrl}/readyz`);
  return `${answer.status} ${await answer.text()}`;
};

test("passwords are taken from the URLs, percent-decoded", async () => {
  await withService({}, async (service) => {
    expect(await readiness(service)).toMatch(/^200/);
  });
});

// Invariant 8.
test("a wrong password of NATS ends the start", async () => {
  await expectEnd({ NATS_URL: natsUrl(WRONG) }, /NATS refuses the connection: .*Authorization Violation/i);
  await expectEnd({ NATS_URL: nats.url }, /NATS refuses the connection: .*Authorization Violation/i);
});

test("a NATS that takes only small messages ends the start", async () => {
  const config = join(folder, "small.conf");
  writeFileSync(config, "max_payload: 500000\n");
  const small = await privateNats({ extraArgs: ["-c", config] });
  await expectEnd({ NATS_URL: small.url, TIMELINE_NATS_TLS: "" }, /max_payload is 500000 bytes.* 540672 or more/);
  await small.stop();
});

test("tls: in NATS_URL speaks TLS, with a certificate that is verified", async () => {
  const secure = { NATS_URL: natsUrl(escaped, "tls") };
  await withService(secure, async () => {
    const answer = await fetch(`${nats.monitorUrl}/connz`);
    const { connections } = (await answer.json()) as { connections: { name: string; tls_version?: string }[] };
    expect(connections.filter(({ name }) => name.startsWith("avion-timeline"))).toEqual([
      expect.objectContaining({ tls_version: "1.3" }),
    ]);
  });
  await expectEnd({ ...secure, TIMELINE_NATS_TLS: "" }, /TLS failed: .*(certificate|issuer)/);
});

test("tls: is refused by a NATS without TLS and by one with a certificate for another host", async () => {
  const plain = await privateNats();
  await expectEnd({ NATS_URL: plain.url.replace("nats:", "tls:") }, /does not offer the TLS/);
  await plain.stop();
  const { cert, key } = certificates.elsewhere;
  const other = join(folder, "elsewhere.conf");
  writeFileSync(other, `tls { cert_file: "${cert}", key_file: "${key}" }\nallow_non_tls: true\n`);
  const elsewhere = await privateNats({ extraArgs: ["-c", other] });
  await expectEnd({ NATS_URL: elsewhere.url.replace("nats:", "tls:") }, /TLS failed: .*altnames/);
  await elsewhere.stop();
});

// Invariant 8.
test("a wrong or missing password of Redis ends the start", async () => {
  await expectEnd({ REDIS_URL: redisUrl(WRONG) }, /Redis: WRONGPASS/);
  await expectEnd({ REDIS_URL: redis.url }, /Redis: NOAUTH/);
});

test("a user of Redis that lacks rights ends the start, which names them", async () => {
  const admin = new Redis({ port: redis.port, password: PASSWORD });
  await admin.call("ACL", "SETUSER", "bounded", "on", `>${PASSWORD}`, "~*", "&*", "+@all", "-@dangerous", "-zadd");
  admin.disconnect();
  const url = redisUrl().replace("redis://:", "redis://bounded:");
  await expectEnd({ REDIS_URL: url }, /Redis 127\.0\.0\.1:\d+: its user lacks these rights: \+info \+zadd/);
});

test("rediss: verifies the certificate of Redis", async () => {
  const url = `rediss://:${escaped}@localhost:${tlsPort}`;
  const { ca, trusted } = certificates;
  for (const [name, value] of Object.entries({ NODE_EXTRA_CA_CERTS: ca, TIMELINE_REDIS_TLS: trusted }))
    await withService({ REDIS_URL: url, [name]: value }, async (service) => {
      expect(await readiness(service)).toMatch(/^200/);
    });
  await expectEnd({ REDIS_URL: url }, /Redis: TLS failed/);
});

test("Redis that asks for a certificate is shown that of the folder", async () => {
  const admin = new Redis({ port: redis.port, password: PASSWORD });
  const mutual = await temporaryFolder("mutual");
  copyFileSync(certificates.ca, join(mutual, "ca.crt"));
  const env = { REDIS_URL: `rediss://:${escaped}@localhost:${tlsPort}`, TIMELINE_REDIS_TLS: mutual };
  try {
    await admin.config("SET", "tls-auth-clients", "yes");
    await expectEnd(env, /Redis: TLS failed/);
    for (const name of ["tls.crt", "tls.key"]) copyFileSync(join(certificates.good.folder, name), join(mutual, name));
    await withService(env, async (service) => expect(await readiness(service)).toMatch(/^200/));
  } finally {
    await admin.config("SET", "tls-auth-clients", "no");
    admin.disconnect();
    await rm(mutual, { recursive: true });
  }
});

test.each([
  ["api", "UserService"],
  ["analysis", "UserService"],
  ["fanout", "PostService"],
])("a refused certificate ends the start of %s, which calls %s", async (roles, name) => {
  const own = await serveGrpc("127.0.0.1:0", [], certificates.good);
  const other = await serveGrpc("127.0.0.1:0", [], certificates.elsewhere);
  const strangers = makeCertificates();
  const variable = name === "UserService" ? "TIMELINE_USER_SERVICE_ADDR" : "TIMELINE_POST_SERVICE_ADDR";
  const env = { TIMELINE_ROLES: roles, TIMELINE_DATA_DIR: join(folder, `${roles}-data`) };
  const trusting = { ...env, TIMELINE_UPSTREAM_TLS: certificates.trusted };
  try {
    const refused = { ...env, TIMELINE_UPSTREAM_TLS: strangers.trusted, [variable]: `127.0.0.1:${own.port}` };
    await expectEnd(refused, new RegExp(`${name} 127.0.0.1:${own.port}: TLS failed: .*(certificate|issuer)`));
    await expectEnd({ ...trusting, [variable]: `dns:///localhost:${other.port}` }, /TLS failed: .*altnames/);
  } finally {
    strangers.remove();
    await Promise.all([own.close(0), other.close(0)]);
  }
});

test("an upstream without TLS, and one that refuses the client, end the start", async () => {
  const [plain, closed] = [
    await serveGrpc("127.0.0.1:0", [], {}),
    await serveGrpc("127.0.0.1:0", [], { ...certificates.good, ca: certificates.ca }),
  ];
  const env = { TIMELINE_ROLES: "api", TIMELINE_UPSTREAM_TLS: certificates.trusted };
  try {
    for (const { port } of [plain, closed])
      await expectEnd({ ...env, TIMELINE_USER_SERVICE_ADDR: `127.0.0.1:${port}` }, /UserService .*: TLS failed: /);
  } finally {
    await Promise.all([plain.close(0), closed.close(0)]);
  }
});

test("upstreams whose certificates are taken, that are away or hang, or that only others call end no start", async () => {
  const silent = createServer(() => undefined).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const { port } = silent.address() as AddressInfo;
  const own = await serveGrpc("127.0.0.1:0", [], certificates.good);
  const other = await serveGrpc("127.0.0.1:0", [], certificates.elsewhere);
  const addresses = (users: number, posts: number) => ({
    TIMELINE_USER_SERVICE_ADDR: `127.0.0.1:${users}`,
    TIMELINE_POST_SERVICE_ADDR: `127.0.0.1:${posts}`,
  });
  const tls = { TIMELINE_UPSTREAM_TLS: certificates.trusted };
  try {
    for (const env of [
      { ...tls, ...addresses(own.port, 1), TIMELINE_ROLES: "api" },
      { ...tls, ...addresses(port, own.port), TIMELINE_ROLES: "api" },
      { ...tls, ...addresses(other.port, other.port), TIMELINE_ROLES: "bridge" },
    ])
      await withService(env, async (service) => expect(await readiness(service)).toMatch(/^200/));
  } finally {
    silent.close();
    await Promise.all([own.close(0), other.close(0)]);
  }
});

test("a process that serves an upstream itself, with a certificate that it refuses, does not start", async () => {
  const env = { TIMELINE_GRPC_TLS: certificates.elsewhere.folder, TIMELINE_UPSTREAM_TLS: certificates.trusted };
  const roles = { TIMELINE_ROLES: "users,posts,api", TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
  await expectEnd(
    { ...env, ...roles, TIMELINE_DATA_DIR: join(folder, "own-data") },
    /Service .*TLS failed: .*altnames/,
  );
});

const ifPostgres = postgresPrograms() === undefined ? test.skip : test;

ifPostgres("a CA of PostgreSQL verifies its certificate", async () => {
  const server = await startPostgres();
  const admin = new pg.Client(server.url);
  try {
    await admin.connect();
    const { rows } = await admin.query<{ data_directory: string }>("SHOW data_directory");
    const data = rows[0]?.data_directory as string;
    const { uid, gid } = statSync(data);
    for (const [from, to] of Object.entries({
      [certificates.good.cert]: "tls.crt",
      [certificates.good.key]: "tls.key",
    })) {
      writeFileSync(join(data, to), readFileSync(from), { mode: 0o600 });
      chownSync(join(data, to), uid, gid);
    }
    for (const set of ["ssl_cert_file = 'tls.crt'", "ssl_key_file = 'tls.key'", "ssl = on"])
      await admin.query(`ALTER SYSTEM SET ${set}`);
    await admin.query("SELECT pg_reload_conf()");
    const roles = { TIMELINE_ROLES: "users", DATABASE_URL: server.url };
    await withService({ ...roles, TIMELINE_DATABASE_TLS: certificates.trusted }, async (service) => {
      expect(await readiness(service)).toMatch(/^200/);
      const { rows: used } = await admin.query(
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'avion-timeline%'",
      );
      expect(used).toEqual([{ ssl: true }]);
    });
    const other = makeCertificates();
    await expectEnd({ ...roles, TIMELINE_DATABASE_TLS: other.trusted }, /database.*(TLS|certificate)/i);
    other.remove();
  } finally {
    await admin.end();
    await server.stop();
  }
});

ifPostgres("a wrong password of PostgreSQL ends the start", async () => {
  const server = await startPostgres();
  try {
    await addGuardedRole(server.url, PASSWORD);
    const url = (password: string): string => server.url.replace("timeline@", `guarded:${password}@`);
    const roles = { TIMELINE_ROLES: "users" };
    await expectEnd(
      { ...roles, DATABASE_URL: url(WRONG) },
      /database refuses the connection: password authentication failed/,
    );
    await expectEnd({ ...roles, DATABASE_URL: `${url(escaped)}?sslmode=require` }, /does not support SSL/);
    await withService({ ...roles, DATABASE_URL: url(escaped) }, async (service) => {
      expect(await readiness(service)).toMatch(/^200/);
    });
  } finally {
    await server.stop();
  }
});

test("certificates that NATS and the service renew while it runs are used at the next connection", async () => {
  const renewed = makeCertificates();
  const dir = await temporaryFolder("renewed");
  const files = { ca: join(dir, "ca.crt"), cert: join(dir, "tls.crt"), key: join(dir, "tls.key") };
  const config = join(dir, "nats.conf");
  const use = ({ ca, good }: Certificates): void => {
    for (const [from, to] of [
      [ca, files.ca] as const,
      [good.cert, files.cert] as const,
      [good.key, files.key] as const,
    ])
      copyFileSync(from, to);
    const tls = `cert_file: "${good.cert}", key_file: "${good.key}", ca_file: "${ca}", verify: true`;
    writeFileSync(config, `${users(PASSWORD)}tls { ${tls} }\nallow_non_tls: true\n`);
  };
  use(certificates);
  let own = await startNats({ dir, extraArgs: ["-c", config] });
  const env = {
    NATS_URL: `tls://our%20user:${escaped}@127.0.0.1:${own.port}`,
    TIMELINE_NATS_TLS: dir,
  };
  try {
    await withService(env, async (service) => {
      await own.stop();
      await eventually(async () => (await readiness(service)).includes("NATS is unavailable"), "NATS is away");
      use(renewed);
      own = await startNats({ dir, extraArgs: ["-c", config], port: own.port });
      await becomes(async () => expect(await readiness(service)).toMatch(/^200/));
    });
  } finally {
    await own.stop();
    await rm(dir, { recursive: true });
    renewed.remove();
  }
});

const complaints = (service: Service): number => service.output().split("refuses this process").length - 1;

// Invariant 8.
test("a password of NATS that is changed while running makes it not ready, said once, until it is mended", async () => {
  const changing = join(folder, "changing.conf");
  const dir = await temporaryFolder("changing");
  const start = (password: string, port?: number): Promise<Broker> => {
    writeFileSync(changing, users(password));
    return startNats({ dir, extraArgs: ["-c", changing], ...(port === undefined ? {} : { port }) });
  };
  let own = await start(PASSWORD);
  const restart = async (password: string): Promise<void> => {
    await own.stop();
    own = await start(password, own.port);
  };
  const tries = async (): Promise<number> =>
    ((await (await fetch(`${own.monitorUrl}/varz`)).json()) as { total_connections: number }).total_connections;
  const env = { NATS_URL: `nats://our%20user:${escaped}@127.0.0.1:${own.port}`, TIMELINE_NATS_TLS: "" };
  const changed = withService(env, async (service) => {
    await restart("another");
    await eventually(() => complaints(service) > 0, "the refusal is in the log");
    expect(service.output()).toContain("NATS refuses the connection");
    // The port may be open to people outside: why it refuses, and whom, is for the log.
    const shown = await readiness(service);
    expect(shown).toContain('"NATS is unavailable"');
    expect(shown).not.toContain("refuses");
    const first = await tries();
    await eventually(async () => (await tries()) > first + 3, "it tried several times");
    expect(complaints(service)).toBe(1);
    expect(service.output().split("NATS is unavailable").length - 1).toBe(1);
    await restart(PASSWORD);
    await becomes(async () => expect(await readiness(service)).toMatch(/^200/));
  });
  try {
    await changed;
  } finally {
    await own.stop();
    await rm(dir, { recursive: true });
  }
});

// Invariant 8.
test("a password of Redis that is changed while running makes it not ready, said once, until it is mended", async () => {
  const admin = new Redis({ port: redis.port, password: PASSWORD });
  await withService({}, async (service) => {
    await admin.config("SET", "requirepass", "another");
    await admin.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    await eventually(
      async () => (await readiness(service)).includes("Redis does not take a command"),
      "Redis is named",
    );
    expect(await readiness(service)).not.toContain("WRONGPASS");
    await eventually(() => service.output().includes("WRONGPASS"), "the whole text is in the log");
    const refused = async (): Promise<number> =>
      Number(/errorstat_WRONGPASS:count=(\d+)/.exec(await admin.info("errorstats"))?.[1]);
    const first = await refused();
    await eventually(async () => (await refused()) > first + 3, "it tried several times");
    expect(complaints(service)).toBe(1);
    await admin.config("SET", "requirepass", PASSWORD);
    await eventually(async () => (await readiness(service)).startsWith("200"), "it is ready again");
  }).finally(() => admin.disconnect());
});
