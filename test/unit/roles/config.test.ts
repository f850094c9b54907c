import { readFile } from "node:fs/promises";
import { expect, test } from "@jest/globals";
import { ConfigError } from "../../../src/kernel/variables.js";
import {
  channelWarning,
  configWarnings,
  readCommandConfig,
  readConfig,
  VARIABLES,
} from "../../../src/roles/config/config.js";
import { checkFiles } from "../../../src/roles/config/files.js";
import { ROLES } from "../../../src/roles/config/process.js";

const ENOUGH = {
  TIMELINE_USER_SERVICE_ADDR: "users:1",
  TIMELINE_POST_SERVICE_ADDR: "posts:2",
  TIMELINE_JWT_SECRET: "a secret of thirty-two bytes or a few more",
};

const CLAIMS = { TIMELINE_JWT_ISSUER: "https://idp.example", TIMELINE_JWT_AUDIENCE: "timeline" };

function faultsOf(env: NodeJS.ProcessEnv): readonly string[] {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
}

test("the defaults of the contract", () => {
  expect(readConfig(ENOUGH)).toMatchObject({
    redis: { urls: ["redis://127.0.0.1:6379"] },
    nats: { servers: ["nats://127.0.0.1:4222"] },
    process: { roles: ["bridge", "fanout", "api", "gateway"], httpAddress: "0.0.0.0:8080" },
    grpcServer: { address: "0.0.0.0:50051" },
    storedTimelines: { maxEntries: 1_000 },
    fanout: {
      audience: "all",
      tierThreshold: Number.POSITIVE_INFINITY,
      pullThreshold: 500_000,
    },
    delivery: { maxAttempts: 5 },
    upstreams: { userServiceAddr: "users:1" },
  });
});

test("a database of Redis without a prefix of the channels is a warning, where the channels are used", () => {
  const warning = (env: NodeJS.ProcessEnv) => channelWarning(readConfig({ ...ENOUGH, ...env }));
  const [numbered, sentinels] = ["redis://redis/2", "redis+sentinel://s1,s2/timeline/2"];
  for (const REDIS_URL of [numbered, sentinels]) {
    expect(warning({ REDIS_URL })).toContain("REDIS_URL names database 2, and TIMELINE_CHANNEL_PREFIX is not set");
    expect(warning({ REDIS_URL, TIMELINE_CHANNEL_PREFIX: "staging:" })).toBeUndefined();
    expect(warning({ REDIS_URL, TIMELINE_ROLES: "fanout" })).toBeUndefined();
    expect(warning({ REDIS_URL, TIMELINE_ROLES: "users", TIMELINE_RELAY_CHANNELS: "true" })).toBeDefined();
  }
  for (const REDIS_URL of ["redis://redis", "redis://redis/0", "redis://a,redis://b"])
    expect(warning({ REDIS_URL })).toBeUndefined();
  expect(faultsOf({ ...ENOUGH, TIMELINE_CHANNEL_PREFIX: "a b*" })).toEqual([
    "TIMELINE_CHANNEL_PREFIX: must have letters, digits and _ . : - only, 64 at most",
  ]);
});

test("the configuration is frozen, and an empty variable counts as unset", () => {
  const config = readConfig({ ...ENOUGH, TIMELINE_MAX_ENTRIES: "", TIMELINE_JWT_ISSUER: "" });
  expect(config.storedTimelines.maxEntries).toBe(1_000);
  expect(config.gateway.jwtIssuer).toBeUndefined();
  for (const frozen of [config, ...Object.values(config)]) expect(Object.isFrozen(frozen)).toBe(true);
});

test("every default is a value its own variable takes", () => {
  for (const { name, schema, default: value } of VARIABLES) {
    if (value === undefined) continue;
    expect([name, schema.safeParse(value).success]).toEqual([name, true]);
  }
});

test("every fault is named at once", () => {
  const faults = faultsOf({
    REDIS_URL: "http://redis",
    NATS_URL: "localhost",
    TIMELINE_ROLES: "api,gateway,cook",
    TIMELINE_MAX_ENTRIES: "many",
    TIMELINE_LOG_LEVEL: "loud",
    TIMELINE_NOTHING_LIKE_IT: "1",
    TIMELINE_HTTP_ADDR: "8080",
  });
  const named = new Set(faults.map((fault) => fault.split(":")[0]));
  for (const name of [
    "REDIS_URL",
    "NATS_URL",
    "TIMELINE_ROLES",
    "TIMELINE_MAX_ENTRIES",
    "TIMELINE_LOG_LEVEL",
    "TIMELINE_NOTHING_LIKE_IT",
    "TIMELINE_HTTP_ADDR",
  ])
    expect(named).toContain(name);
  const message = new ConfigError(faults).message;
  for (const fault of faults) expect(message).toContain(`  - ${fault}`);
});

test.each([
  ["TIMELINE_MAX_ENTRIES", "-5", ["must be a whole number from 10 to 100000"]],
  ["TIMELINE_HTTP_ADDR", "8080", ["must be host:port"]],
  [
    "TIMELINE_OPS_CLAIM",
    "operator",
    ["must be the name of a claim, a colon and a value, e.g. scope:timeline-operator"],
  ],
  ["TIMELINE_ACCESS_LOG_SHARE", "1.1", ["must be a number from 0 to 1"]],
  ["TIMELINE_NOTIFY_PARTS", "48", ["must be 1 to 16, 32 or 64"]],
  ["TIMELINE_FANOUT_PULL_THRESHOLD", "-1", ["must be off, or a whole number from 0 to 1000000000"]],
  [
    "TIMELINE_LIMIT_DROPS",
    "300",
    ["must be off, or a number from 1 to 10000 and a time from 1s to 30d, such as 300/3h"],
  ],
  ["TIMELINE_ROLES", "api,cook", [`cook is not a role; the roles are ${ROLES.join(", ")}`]],
])("the fault of %s=%s says what the variable takes, once", (name, value, faults) => {
  expect(faultsOf({ ...ENOUGH, [name]: value })).toEqual(faults.map((fault) => `${name}: ${fault}`));
});

test.each([
  ["TIMELINE_MAX_ENTRYS", "TIMELINE_MAX_ENTRIES"],
  ["TIMELINE_ROLE", "TIMELINE_ROLES"],
  ["TIMELINE_JWT_SECRETS", "TIMELINE_JWT_SECRET"],
])("an unknown variable is refused: %s was probably meant to be %s", (given, meant) => {
  expect(faultsOf({ ...ENOUGH, [given]: "1" })).toEqual([
    `${given}: is not a variable of this service (did you mean ${meant}?)`,
  ]);
});

test("an unknown variable that resembles none gets no suggestion; other prefixes are not ours", () => {
  expect(faultsOf({ ...ENOUGH, TIMELINE_X: "1", OTEL_SERVICE_NAME: "x", PATH: "/bin", REDIS_HOST: "y" })).toEqual([
    "TIMELINE_X: is not a variable of this service",
  ]);
});

const RENAMED = VARIABLES.flatMap(({ name, former }) => (typeof former === "string" ? [[name, former]] : []));

test.each(RENAMED)("%s is read under its former name %s, with a warning", (name, formerName) => {
  const env = { ...ENOUGH, [formerName as string]: "7" };
  expect(faultsOf(env)).toEqual([]);
  expect(configWarnings(env)).toEqual([`${formerName} is now ${name}; the next version refuses the old name`]);
  expect(configWarnings({ ...ENOUGH, [name as string]: "7", [formerName as string]: "" })).toEqual([]);
});

test.each(RENAMED)("%s and its former name %s together are refused, also with one value", (name, formerName) => {
  expect(faultsOf({ ...ENOUGH, [name as string]: "7", [formerName as string]: "7" })).toEqual([
    `${name}: excludes ${formerName}, its former name; remove ${formerName}`,
  ]);
});

test("the value of a former name is taken, and a bad one is refused under the name that was given", () => {
  const old = (value: string) => ({ ...ENOUGH, TIMELINE_FANOUT_MAX_ATTEMPTS: value });
  expect(readConfig(old("7")).delivery.maxAttempts).toBe(7);
  expect(readConfig(old("")).delivery.maxAttempts).toBe(5);
  expect(faultsOf(old("many"))).toEqual([expect.stringMatching(/^TIMELINE_FANOUT_MAX_ATTEMPTS: /)]);
});

test("a setting that was removed is refused as such, by a command too; an empty one counts as unset", () => {
  const env = { TIMELINE_FAILPOINTS: "written=kill", TIMELINE_REBUILD_QUEUE: "5", TIMELINE_AUDIT_USERS: "" };
  const faults = ["TIMELINE_FAILPOINTS", "TIMELINE_REBUILD_QUEUE"].map(
    (name) => `${name}: is no longer a setting; remove it`,
  );
  expect(faultsOf({ ...ENOUGH, ...env })).toEqual(faults);
  expect(() => readCommandConfig(env)).toThrow(faults[0]);
});

test("a setting that has become a constant is a warning for one version", () => {
  const env = { ...ENOUGH, TIMELINE_JWT_JWKS_MAX_AGE_MS: "60000", TIMELINE_LOG_FILL_RATE: "" };
  expect(faultsOf(env)).toEqual([]);
  expect(configWarnings(env)).toEqual([
    "TIMELINE_JWT_JWKS_MAX_AGE_MS is no longer a setting and has no effect; the next version refuses it",
  ]);
});

test.each<[string, Record<string, string>, string[]]>([
  ["bridge", {}, []],
  ["fanout", {}, ["TIMELINE_USER_SERVICE_ADDR", "TIMELINE_POST_SERVICE_ADDR"]],
  ["api", { TIMELINE_USER_SERVICE_ADDR: "u:1" }, ["TIMELINE_POST_SERVICE_ADDR"]],
  ["gateway", {}, ["TIMELINE_JWT_SECRET"]],
  ["gateway", { TIMELINE_JWT_JWKS_URL: "https://idp.example/keys", ...CLAIMS }, []],
  ["bridge,gateway", { TIMELINE_JWT_SECRET: ENOUGH.TIMELINE_JWT_SECRET }, []],
])("the roles %s with %j lack %j", (roles, env, lacking) => {
  expect(faultsOf({ TIMELINE_ROLES: roles, ...env }).map((fault) => fault.split(":")[0])).toEqual(lacking);
});

test.each<[string, string, object]>([
  ["TIMELINE_ROLES", " bridge , api ", { process: { roles: ["bridge", "api"] } }],
  ["REDIS_URL", "rediss://a:1,rediss://b:2", { redis: { urls: ["rediss://a:1", "rediss://b:2"] } }],
  ["NATS_URL", "tls://a:4222, tls://b:4222", { nats: { servers: ["tls://a:4222", "tls://b:4222"] } }],
  ["TIMELINE_GRPC_ADDR", "[::1]:50051", { grpcServer: { address: "[::1]:50051" } }],
  ["TIMELINE_MAX_ENTRIES", "10", { storedTimelines: { maxEntries: 10 } }],
  ["TIMELINE_GLOBAL_REMOTE_SHARE", "0.5", { storedTimelines: { globalRemoteShare: 0.5 } }],
  ["TIMELINE_HOME_REPLIES", "followed", { storedTimelines: { homeReplies: "followed" } }],
  ["TIMELINE_FANOUT_TIER_THRESHOLD", "499999", { fanout: { tierThreshold: 499_999, pullThreshold: 500_000 } }],
  ["TIMELINE_LIMIT_FOLLOWS", "off", { users: { limitFollows: undefined } }],
  ["TIMELINE_LIMIT_DROPS", "300/3h", { posts: { limitDrops: { most: 300, within: "3h", withinMs: 10_800_000 } } }],
  ["TIMELINE_LIMIT_SAME_BODY", "1/90s", { posts: { limitSameBody: { most: 1, within: "90s", withinMs: 90_000 } } }],
  ["TIMELINE_LIMIT_REACTIONS", "10000/30d", { posts: { limitReactions: { most: 10_000, withinMs: 2_592_000_000 } } }],
  ["TIMELINE_FETCH", "on", { posts: { fetch: true } }],
  ["TIMELINE_FETCH", "off", { posts: { fetch: false } }],
  ["TIMELINE_FANOUT_PULL_THRESHOLD", "0", { fanout: { pullThreshold: 0 } }],
  [
    "TIMELINE_ALLOWED_ORIGINS",
    "https://app.example, http://[::1]:8080,capacitor://localhost",
    { gateway: { allowedOrigins: ["https://app.example", "http://[::1]:8080", "capacitor://localhost"] } },
  ],
])("%s=%j is understood", (name, given, value) => {
  expect(readConfig({ ...ENOUGH, [name]: given })).toMatchObject(value);
});

test.each([
  ...["9", "1e3", "100.5", "0", "-1", "1.5", "NaN", "Infinity", " ", "1000x", "0x10"].map(
    (value) => ["TIMELINE_MAX_ENTRIES", value] as const,
  ),
  ...["0", "0.0", "1.1", "-0.5", "50%", ".5", "off"].map((value) => ["TIMELINE_GLOBAL_REMOTE_SHARE", value] as const),
  ["TIMELINE_HOME_REPLIES", "none"],
  ["TIMELINE_MAX_ATTEMPTS", "0"],
  // Reads merge no more.
  ["TIMELINE_MAX_FOLLOWING", "100001"],
  ...["0/1h", "10001/1h", "5/0s", "5/31d", "5/h", "5/1w", "5/1H", "-5/1h", "5.5/1h", "5/1h ", "5/1h/2", "OFF"].flatMap(
    (value) => ["DROPS", "SAME_BODY", "FOLLOWS", "REACTIONS"].map((of) => [`TIMELINE_LIMIT_${of}`, value] as const),
  ),
  ...["true", "ON", "yes"].map((value) => ["TIMELINE_FETCH", value] as const),
  ["TIMELINE_MAX_RELATIONS", "100001"],
  ["TIMELINE_RETRY_BASE_MS", "-1"],
  ["TIMELINE_FANOUT_AUDIENCE", "some"],
  ["TIMELINE_GRPC_ADDR", "localhost"],
  ["TIMELINE_GRPC_ADDR", "localhost:65536"],
  ["TIMELINE_HTTP_ADDR", ":8080"],
  ["TIMELINE_ROLES", ","],
  ["REDIS_URL", ","],
  ["NATS_URL", "nats://a,redis://b"],
  ["TIMELINE_ATPROTO_URL", "https://appview.example/prefix"],
  ["TIMELINE_ATPROTO_URL", "https://appview.example?key=1"],
  ["TIMELINE_FANOUT_TIER_THRESHOLD", "500000"],
  ...["*", "null", "app.example", "https://app.example/", "https://app.example:443", "https://App.example"].map(
    (origin) => ["TIMELINE_ALLOWED_ORIGINS", `https://other.example,${origin}`] as const,
  ),
])("%s=%j is refused by name", (name, given) => {
  expect(faultsOf({ ...ENOUGH, [name]: given }).map((fault) => fault.split(":")[0])).toContain(name);
});

test("a process that serves an upstream calls itself, unless an address is given", () => {
  const own = { TIMELINE_ROLES: "users,posts,api", TIMELINE_GRPC_ADDR: "0.0.0.0:7000" };
  expect(readConfig(own).upstreams).toMatchObject({
    userServiceAddr: "127.0.0.1:7000",
    postServiceAddr: "127.0.0.1:7000",
  });
  expect(readConfig({ ...own, TIMELINE_POST_SERVICE_ADDR: "posts:2" }).upstreams).toMatchObject({
    userServiceAddr: "127.0.0.1:7000",
    postServiceAddr: "posts:2",
  });
});

test("a command needs nothing that only roles need, and calls no upstream that is not named", () => {
  const { upstreams } = readCommandConfig({ TIMELINE_ROLES: "users,posts,api,gateway" });
  expect([upstreams.userServiceAddr, upstreams.postServiceAddr]).toEqual([undefined, undefined]);
  expect(() => readCommandConfig({ TIMELINE_MAX_ENTRYS: "1", NATS_URL: "localhost" })).toThrow(
    /TIMELINE_MAX_ENTRYS(.|\n)*NATS_URL/,
  );
});

test("every role can be asked for alone", () => {
  for (const role of ROLES) expect(readConfig({ ...ENOUGH, TIMELINE_ROLES: role }).process.roles).toEqual([role]);
});

test("every variable is documented, with its default and its meaning", async () => {
  const documented = await readFile("docs/configuration.md", "utf8");
  for (const { name, default: value, about } of VARIABLES) {
    const row = documented.split("\n").find((line) => line.startsWith(`| \`${name}\` |`));
    expect([name, row]).toEqual([name, expect.stringContaining(about)]);
    if (value !== undefined) expect(row).toContain(value);
  }
});

test("files that cannot be read are faults of the configuration, all of them at once", () => {
  const config = readConfig({
    ...process.env,
    TIMELINE_ROLES: "bridge",
    TIMELINE_NATS_CREDS: "/nowhere/nats.creds",
    TIMELINE_NATS_TLS_CA: "package.json",
    TIMELINE_UPSTREAM_TLS_CA: "/nowhere/ca.pem",
    ...{ REDIS_URL: "rediss://a:1", TIMELINE_REDIS_TLS_CA: "/nowhere/redis.pem" },
  });
  expect(() => checkFiles(config)).toThrow(
    /TIMELINE_NATS_CREDS: names a file that cannot be read \(ENOENT.*\n.*TIMELINE_UPSTREAM_TLS\/ca.crt(.|\n)*TIMELINE_REDIS_TLS\/ca.crt/,
  );
  expect(() => checkFiles(config)).not.toThrow(/TIMELINE_NATS_TLS/);
});

test("a message is handed out again only after any write of who had it is refused", () => {
  expect(faultsOf({ ...ENOUGH, TIMELINE_ACK_WAIT_MS: "3499" })).toEqual([expect.stringContaining("ACK_WAIT_MS")]);
  expect(faultsOf({ ...ENOUGH, TIMELINE_ACK_WAIT_MS: "3500" })).toEqual([]);
});

test("a proxy that cannot be used is refused by name, where servers of others are asked", () => {
  const env = { ...ENOUGH, https_proxy: "socks5://proxy:1080", HTTP_PROXY: "proxy:3128" };
  expect(faultsOf({ ...env, TIMELINE_ROLES: "analysis" })).toEqual([
    "https_proxy: must be a URL of http:// or https://",
    "HTTP_PROXY: must be a URL of http:// or https://",
  ]);
  expect(faultsOf({ ...env, TIMELINE_ROLES: "api" })).toEqual([]);
});
