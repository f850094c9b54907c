import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "@jest/globals";
import { namedClusters, parseSentinelUrl, printableAddresses } from "../../../src/kernel/urls.js";
import { ConfigError } from "../../../src/kernel/variables.js";
import { configWarnings, readConfig } from "../../../src/roles/config/config.js";
import { checkFiles } from "../../../src/roles/config/files.js";

const ENOUGH = {
  TIMELINE_USER_SERVICE_ADDR: "users:1",
  TIMELINE_POST_SERVICE_ADDR: "posts:2",
  TIMELINE_JWT_SECRET: "a secret of thirty-two bytes or a few more",
};
const { TIMELINE_JWT_SECRET: _secret, ...NO_SECRET } = ENOUGH;
const KEYS = { ...NO_SECRET, TIMELINE_JWT_JWKS_URL: "https://idp.example/keys" };
const CLAIMS = { TIMELINE_JWT_ISSUER: "https://idp.example", TIMELINE_JWT_AUDIENCE: "timeline" };

function faultsOf(work: () => unknown): readonly string[] {
  try {
    work();
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
}

const faults = (env: NodeJS.ProcessEnv): readonly string[] => faultsOf(() => readConfig(env));
const names = (env: NodeJS.ProcessEnv): string[] => faults(env).map((fault) => fault.split(":")[0] as string);

test.each([
  ["REDIS_URL", "redis://:pass@a:1/2"],
  ["REDIS_URL", "rediss://user:p%40ss@[::1]"],
  ["REDIS_URL", "redis://u:p@a:1,redis://u:p@b:1/0"],
  ["REDIS_URL", "redis://:p@a:1/0,redis://:p@b:1; redis://:q@c:1; rediss://d:1"],
  ["REDIS_URL", "redis+sentinel://a/main"],
  ["REDIS_URL", "rediss+sentinel://u:p%40ss@a:1,b,[::1]:3/the-main.1_x/2?sentinel_user=s&sentinel_password=p%2Fs"],
  ["NATS_URL", "nats://user:pass@a:4222/,nats://user:pass@b:4222"],
  ["NATS_URL", "tls://token@a"],
  ["DATABASE_URL", "postgres://user:pass@a:5432/timeline?sslmode=verify-full&application_name=x"],
  ["DATABASE_URL", "postgresql:///timeline?host=/var/run/postgresql"],
])("%s=%s is taken", (name, value) => {
  expect(faults({ ...ENOUGH, [name]: value })).toEqual([]);
});

test.each([
  ["a database of a cluster", "REDIS_URL", "redis://a:1/1,redis://b:1"],
  ["a path that is no database", "REDIS_URL", "redis://a:1/timeline"],
  ["a parameter of Redis", "REDIS_URL", "redis://a:1?family=6"],
  ["a fragment", "REDIS_URL", "redis://a:1#x"],
  ["a user without a password", "REDIS_URL", "redis://user@a:1"],
  ["two passwords of a cluster", "REDIS_URL", "redis://:p@a:1,redis://:q@b:1"],
  ["a password of one node", "REDIS_URL", "redis://:p@a:1,redis://b:1"],
  ["TLS to one node of a cluster", "REDIS_URL", "redis://a:1,rediss://b:1"],
  ["no host", "REDIS_URL", "redis:///1"],
  ["no name of a master", "REDIS_URL", "redis+sentinel://a:1,b:1"],
  ["an empty name of a master", "REDIS_URL", "redis+sentinel://a:1//2"],
  ["a name that no sentinel takes", "REDIS_URL", "redis+sentinel://a:1/ma%2Fin"],
  ["a path after the database", "REDIS_URL", "redis+sentinel://a:1/main/0/1"],
  ["a database that is no number", "REDIS_URL", "redis+sentinel://a:1/main/x"],
  ["a parameter of sentinels", "REDIS_URL", "redis+sentinel://a:1/main?sentinel_pasword=x"],
  ["a file that the configuration adds", "REDIS_URL", "rediss+sentinel://a:1/main?ca=/the.pem"],
  ["a fragment after sentinels", "REDIS_URL", "redis+sentinel://a:1/main#x"],
  ["a user of sentinels without a password", "REDIS_URL", "redis+sentinel://a:1/main?sentinel_user=s"],
  ["a broken escape of a sentinel's password", "REDIS_URL", "redis+sentinel://a:1/main?sentinel_password=%zz"],
  ["no sentinel", "REDIS_URL", "redis+sentinel:///main"],
  ["a port that no sentinel has", "REDIS_URL", "redis+sentinel://a:99999,b:1/main"],
  ["sentinels of two masters", "REDIS_URL", "redis+sentinel://a:1/main,redis+sentinel://b:1/other"],
  ["sentinels beside a server", "REDIS_URL", "redis+sentinel://a:1/main,redis://b:1"],
  ["a database of several Clusters", "REDIS_URL", "redis://a:1/1;redis://b:1"],
  ["sentinels among Clusters", "REDIS_URL", "redis://a:1;redis+sentinel://b:1/main"],
  ["a Cluster without a server", "REDIS_URL", "redis://a:1;;redis://b:1"],
  ["a server of two Clusters", "REDIS_URL", "redis://a,redis://b:1;redis://c:1,redis://a:6379"],
  ["a parameter that the configuration adds", "REDIS_URL", "redis://a:1;redis://b:1?cluster=3"],
  [
    "more Clusters than keys are spread over",
    "REDIS_URL",
    Array.from({ length: 17 }, (_, at) => `redis://a:${at + 1}`).join(";"),
  ],
  ["a path", "NATS_URL", "nats://a:1/x"],
  ["a parameter of NATS", "NATS_URL", "nats://a:1?tls=true"],
  ["TLS to one server", "NATS_URL", "nats://a:1,tls://b:1"],
  ["two users", "NATS_URL", "nats://u:p@a:1,nats://v:p@b:1"],
  ["two databases", "DATABASE_URL", "postgres://a/x,postgres://b/x"],
  ["a parameter that the driver ignores", "DATABASE_URL", "postgres://a/x?target_session_attrs=read-write"],
  ["a mode of TLS that the driver ignores", "DATABASE_URL", "postgres://a/x?sslmode=allow"],
  ["a broken escape", "DATABASE_URL", "postgres://u:%zz@a/x"],
])("%s is refused: %s=%s", (_what, name, value) => {
  expect(names({ ...ENOUGH, [name]: value })).toContain(name);
});

test("a credentials file excludes a user in the URL", () => {
  expect(names({ ...ENOUGH, NATS_URL: "nats://u:p@a:1", TIMELINE_NATS_CREDS: "nats.creds" })).toEqual([
    "TIMELINE_NATS_CREDS",
  ]);
  expect(names({ ...ENOUGH, NATS_URL: "nats://a:1", TIMELINE_NATS_CREDS: "nats.creds" })).toEqual([]);
});

test("TLS first to NATS needs TLS in the URL", () => {
  const TIMELINE_NATS_TLS_FIRST = "true";
  expect(names({ ...ENOUGH, TIMELINE_NATS_TLS_FIRST, NATS_URL: "nats://a:1" })).toEqual(["TIMELINE_NATS_TLS_FIRST"]);
  expect(names({ ...ENOUGH, TIMELINE_NATS_TLS_FIRST, NATS_URL: "tls://a:1" })).toEqual([]);
});

const root = mkdtempSync(join(tmpdir(), "timeline test config-"));
afterAll(() => rmSync(root, { recursive: true }));

/** Makes a folder with these files. */
function folderWith(...names: string[]): string {
  const folder = mkdtempSync(join(root, "tls-"));
  for (const name of names) writeFileSync(join(folder, name), "no certificate");
  return folder;
}

const TLS = ["GRPC", "NATS", "UPSTREAM", "REDIS", "DATABASE"].map((channel) => `TIMELINE_${channel}_TLS`);
const SECURE = { REDIS_URL: "rediss://a:1", DATABASE_URL: "postgres://u:p@a/x" };

test.each(TLS)("%s names a folder that can be read, with all that it needs", (name) => {
  const faultsWith = (folder: string) => faults({ ...ENOUGH, ...SECURE, [name]: folder });
  const file = join(folderWith("ca.crt"), "ca.crt");
  expect(faultsWith(file)).toEqual([`${name}: names a folder that cannot be read (ENOTDIR)`]);
  expect(faultsWith("/nowhere")).toEqual([`${name}: names a folder that cannot be read (ENOENT)`]);
  expect(faultsWith(folderWith("ca.pem", "tls.pem"))).toEqual([expect.stringMatching(`^${name}: .*without ca.crt`)]);
  for (const alone of ["tls.crt", "tls.key"])
    expect(faultsWith(folderWith("ca.crt", alone))).toEqual([`${name}: tls.crt and tls.key go together`]);
  expect(faultsWith(folderWith("ca.crt", "tls.crt", "tls.key", "..data"))).toEqual([]);
});

test("a CA for callers of gRPC is refused without the certificate that turns TLS on", () => {
  expect(names({ ...ENOUGH, TIMELINE_GRPC_TLS: folderWith("ca.crt") })).toEqual(["TIMELINE_GRPC_TLS"]);
  expect(names({ ...ENOUGH, TIMELINE_GRPC_TLS: folderWith("tls.crt", "tls.key") })).toEqual([]);
});

test("the files of Redis and PostgreSQL are used by whoever connects, and refused where they would verify nothing", () => {
  const urls = { REDIS_URL: "rediss://a:1,rediss://b:1", DATABASE_URL: "postgres://u:p@a/x?sslmode=require" };
  const folder = folderWith("ca.crt", "tls.crt", "tls.key");
  const [ca, cert, key] = ["ca.crt", "tls.crt", "tls.key"].map((name) => join(folder, name));
  const folders = { TIMELINE_REDIS_TLS: folder, TIMELINE_DATABASE_TLS: folder };
  const { redis, database } = readConfig({ ...ENOUGH, ...urls, ...folders });
  const used = [...redis.urls, database.url as string].map((url) => Object.fromEntries(new URL(url).searchParams));
  const ssl = { sslmode: "require", sslrootcert: ca, sslcert: cert, sslkey: key };
  expect(used).toEqual([{ ca, cert, key }, { ca, cert, key }, ssl]);
  expect(names({ ...ENOUGH, ...urls, ...folders, REDIS_URL: "redis://a:1" })).toEqual(["TIMELINE_REDIS_TLS"]);
  for (const parameter of ["sslmode=disable", "sslmode=no-verify", "sslrootcert=/other.pem", "sslkey=/other.pem"])
    expect(names({ ...ENOUGH, ...urls, ...folders, DATABASE_URL: `postgres://a/x?${parameter}` })).toEqual([
      "TIMELINE_DATABASE_TLS",
    ]);
  const trusting = { ...urls, TIMELINE_DATABASE_TLS: folderWith("ca.crt") };
  expect(names({ ...ENOUGH, ...trusting, DATABASE_URL: "postgres://a/x?sslcert=/c&sslkey=/k" })).toEqual([]);
  expect(names({ ...ENOUGH, REDIS_URL: "rediss://a:1?ca=/the.pem" })).toEqual(["REDIS_URL"]);
});

test("the files that former settings name are used, with a warning each", () => {
  const former = { TIMELINE_NATS_TLS_CA: "/a.pem", TIMELINE_NATS_TLS_CERT: "/b.pem", TIMELINE_NATS_TLS_KEY: "/c.pem" };
  expect(readConfig({ ...ENOUGH, ...former }).nats.tls).toEqual({ ca: "/a.pem", cert: "/b.pem", key: "/c.pem" });
  expect(configWarnings({ ...ENOUGH, ...former })).toEqual(
    Object.keys(former).map((name) => `${name} is now TIMELINE_NATS_TLS; the next version refuses the old name`),
  );
  expect(readConfig({ ...ENOUGH, ...SECURE, TIMELINE_REDIS_TLS_CA: "/a.pem" }).redis.tls).toEqual({ ca: "/a.pem" });
  expect(names({ ...ENOUGH, TIMELINE_NATS_TLS_CERT: "/b.pem" })).toEqual(["TIMELINE_NATS_TLS_CERT"]);
  expect(faults({ ...ENOUGH, TIMELINE_NATS_TLS_CA: "/a.pem", TIMELINE_NATS_TLS: folderWith("ca.crt") })).toEqual([
    "TIMELINE_NATS_TLS: excludes TIMELINE_NATS_TLS_CA, its former name; remove TIMELINE_NATS_TLS_CA",
  ]);
});

test("each of several Redis Clusters has its URLs, in the order of the setting", () => {
  const TIMELINE_REDIS_TLS = folderWith("ca.crt");
  const REDIS_URL = " rediss://:p@b:2,rediss://:p@a:1 ; rediss://c;rediss://d:4";
  const { redis } = readConfig({ ...ENOUGH, REDIS_URL, TIMELINE_REDIS_TLS });
  const clusters = namedClusters(redis.urls).map((urls) => urls.map((url) => new URL(url)));
  expect(clusters.map((urls) => urls.map(({ host }) => host))).toEqual([["b:2", "a:1"], ["c"], ["d:4"]]);
  for (const { searchParams } of clusters.flat())
    expect(searchParams.get("ca")).toBe(join(TIMELINE_REDIS_TLS, "ca.crt"));
  expect(printableAddresses(redis.urls)).toBe("b:2,a:1;c:6379;d:4");
});

test("a fault of one of several Redis Clusters names it, and no password", () => {
  expect(faults({ ...ENOUGH, REDIS_URL: "redis://:secret@a:1;redis+sentinel://:secret@b:1/main" })).toEqual([
    "REDIS_URL: Redis Cluster 2: the value is not a URL of redis:// or rediss://; special characters of a password are percent-encoded",
  ]);
});

test("a URL of sentinels becomes one of each, with the CA of the setting", () => {
  const REDIS_URL = "rediss+sentinel://:p%40ss@a:1, b/main/3?sentinel_user=s&sentinel_password=1+1%2F";
  const TIMELINE_REDIS_TLS = folderWith("ca.crt");
  const { redis } = readConfig({ ...ENOUGH, REDIS_URL, TIMELINE_REDIS_TLS });
  const sentinels = redis.urls.map((url) => ({
    ...parseSentinelUrl(url),
    url: undefined,
    ca: new URL(url).searchParams.get("ca"),
  }));
  const same = {
    ...{ protocol: "rediss+sentinel:", user: "", password: "p@ss", name: "main", database: 3 },
    ...{ sentinelUser: "s", sentinelPassword: "1+1/", ca: join(TIMELINE_REDIS_TLS, "ca.crt"), url: undefined },
  };
  expect(sentinels).toEqual([
    { ...same, host: "a", port: 1 },
    { ...same, host: "b", port: 26379 },
  ]);
  expect(names({ ...ENOUGH, REDIS_URL: "redis+sentinel://a/main", TIMELINE_REDIS_TLS })).toEqual([
    "TIMELINE_REDIS_TLS",
  ]);
});

test("files that hold no certificate are refused", () => {
  const config = readConfig({ ...ENOUGH, TIMELINE_NATS_TLS: folderWith("tls.crt", "tls.key") });
  expect(faultsOf(() => checkFiles(config))).toEqual([expect.stringMatching(/^TIMELINE_NATS_TLS: no usable/)]);
});

test("a secret under 32 bytes is refused, counted in bytes, unless allowed aloud", () => {
  expect(names({ ...ENOUGH, TIMELINE_JWT_SECRET: "x".repeat(31) })).toEqual(["TIMELINE_JWT_SECRET"]);
  expect(faults({ ...ENOUGH, TIMELINE_JWT_SECRET: "x".repeat(32) })).toEqual([]);
  expect(faults({ ...ENOUGH, TIMELINE_JWT_SECRET: "é".repeat(16) })).toEqual([]);
  expect(faults({ ...ENOUGH, TIMELINE_JWT_SECRET: "x", TIMELINE_JWT_ALLOW_UNSAFE: "true" })).toEqual([]);
  expect(faults({ ...ENOUGH, TIMELINE_JWT_SECRET: "x" })[0]).toContain("TIMELINE_JWT_ALLOW_UNSAFE");
});

test("a key set over http or without issuer and audience is refused, unless allowed aloud", () => {
  expect(names({ ...KEYS })).toEqual(["TIMELINE_JWT_ISSUER", "TIMELINE_JWT_AUDIENCE"]);
  expect(names({ ...KEYS, TIMELINE_JWT_ISSUER: "x" })).toEqual(["TIMELINE_JWT_AUDIENCE"]);
  expect(names({ ...KEYS, ...CLAIMS, TIMELINE_JWT_JWKS_URL: "http://127.0.0.1/keys" })).toEqual([
    "TIMELINE_JWT_JWKS_URL",
  ]);
  expect(names({ ...KEYS, ...CLAIMS, TIMELINE_JWT_JWKS_URL: "https://u:p@idp.example/keys" })).toEqual([
    "TIMELINE_JWT_JWKS_URL",
  ]);
  const allowed = { TIMELINE_JWT_JWKS_URL: "http://127.0.0.1/keys", TIMELINE_JWT_ALLOW_UNSAFE: "true" };
  expect(faults({ ...NO_SECRET, ...allowed })).toEqual([]);
  expect(faults({ ...KEYS, ...CLAIMS })).toEqual([]);
});

const MARKER = "hunter2marker";
const SECRETS = [
  ...["", "user:", "us%20er:", "a b:"].map((user) => `${user}${MARKER}`),
  ...[":", "user:%zz", "user:p/", "user:p?", "user:p#", "user:1/", "user:p@", "user:p,"].map((head) => head + MARKER),
];
const SHAPES = [
  "%@host:1,other:2/main?x=%",
  "host/main?sentinel_password=%&x",
  "host/%",
  "%@host:1",
  "%@host:99999",
  "%@host/%",
  "%@",
  "%",
  "%@host:1?password=%",
  "host:1/%",
  "host:1#%",
];
const URL_VARIABLES = ["REDIS_URL", "NATS_URL", "DATABASE_URL", "TIMELINE_JWT_JWKS_URL"];
const PROTOCOLS = [
  "redis://",
  "redis+sentinel://",
  "rediss:",
  "nats://",
  "tls://",
  "postgres://",
  "http://",
  "ftp://",
  "",
  "://",
];

/** The faults of variables of one line are told at once; files are read where there are none. */
const TOGETHER = [[...URL_VARIABLES, "TIMELINE_USER_SERVICE_ADDR", "TIMELINE_GRPC_ADDR"], ["TIMELINE_NATS_CREDS"], TLS];

test("no fault of a URL repeats any part of a password", () => {
  let refused = 0;
  for (const names of TOGETHER)
    for (const protocol of PROTOCOLS)
      for (const shape of SHAPES)
        for (const secret of SECRETS) {
          const value = protocol + shape.replaceAll("%", secret);
          const env = Object.fromEntries(names.map((name) => [name, value]));
          const found = faultsOf(() => checkFiles(readConfig({ ...NO_SECRET, ...env })));
          refused += names.filter((name) => found.some((fault) => fault.startsWith(name))).length;
          expect(found.join("\n")).not.toContain(MARKER);
        }
  expect(refused).toBeGreaterThan(1_000);
});
