import { z } from "zod";
import { grouped } from "./concurrency.js";
import { nonEmptyList } from "./variables.js";

const DEFAULT_PORTS: Readonly<Record<string, number>> = {
  "redis:": 6379,
  "rediss:": 6379,
  "redis+sentinel:": 26379,
  "rediss+sentinel:": 26379,
  "nats:": 4222,
  "tls:": 4222,
  "postgres:": 5432,
  "postgresql:": 5432,
  "http:": 80,
  "https:": 443,
};

type ServerUrl = ReturnType<typeof parseServerUrl>;

export function parseServerUrl(text: string) {
  const url = new URL(text);
  return {
    url,
    protocol: url.protocol,
    host: decodeURIComponent(url.hostname).replace(/^\[(.*)\]$/, "$1"),
    port: Number(url.port) || (DEFAULT_PORTS[url.protocol] ?? 0),
    user: decodeURIComponent(url.username),
    password: decodeURIComponent(url.password),
  };
}

/** The form of a URL is redis+sentinel://user:password@host:port/name/database?sentinel_user=…&sentinel_password=…. */
export const namesSentinels = ([url = ""]: readonly string[]): boolean => /^rediss?\+sentinel:/.test(url);

/** Each URL names one of the sentinels. */
export function parseSentinelUrl(text: string) {
  const server = parseServerUrl(text);
  const [, name = "", database = ""] = server.url.pathname.split("/");
  // URLSearchParams would read a plus as a space.
  const parameter = (wanted: string): string => {
    const pairs = server.url.search.slice(1).split("&");
    return decodeURIComponent(pairs.find((pair) => pair.startsWith(`${wanted}=`))?.slice(wanted.length + 1) ?? "");
  };
  const [sentinelUser, sentinelPassword] = [parameter("sentinel_user"), parameter("sentinel_password")];
  return { ...server, name, database: Number(database), sentinelUser, sentinelPassword };
}

/** Sentinels have one master; the nodes of a Redis Cluster have only database 0. */
export const databaseOf = ([url = ""]: readonly string[]): number =>
  namesSentinels([url]) ? parseSentinelUrl(url).database : Number(new URL(url).pathname.slice(1));

/** Several URLs name the nodes of one Redis Cluster or of several, unless they name sentinels. */
export const namesCluster = (urls: readonly string[]): boolean => urls.length > 1 && !namesSentinels(urls);

/** Of several Redis Clusters the URLs of the second have this parameter with the value 2, and so on. */
const CLUSTER = "cluster";

/** Returns the URLs of each Redis Cluster, in the order of `REDIS_URL`. */
export const namedClusters = (urls: readonly string[]): string[][] => [
  ...grouped(urls, (url) => new URL(url).searchParams.get(CLUSTER) ?? "1").values(),
];

/** Returns host:port. A whole URL may hold a password and must not be printed. */
export function printableAddress(url: string): string {
  const { host, port } = parseServerUrl(url);
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

export const printableAddresses = (urls: readonly string[]): string =>
  namedClusters(urls)
    .map((servers) => servers.map(printableAddress).join(","))
    .join(";");

type Check = (urls: readonly ServerUrl[]) => readonly string[];

/** A fault names the position, never the value: a text that cannot be parsed may be a password. */
function urls(protocols: readonly string[], ...checks: readonly Check[]) {
  const read = (text: string): ServerUrl | undefined => {
    try {
      const url = parseServerUrl(text);
      return protocols.includes(url.protocol) ? url : undefined;
    } catch {
      return undefined;
    }
  };
  const names = protocols.map((name) => `${name}//`).join(" or ");
  const unreadable = `is not a URL of ${names}; special characters of a password are percent-encoded`;
  return nonEmptyList.superRefine((texts, context) => {
    const urls = texts.map(read);
    const readable = urls.filter((url) => url !== undefined);
    const faults =
      readable.length < urls.length
        ? faultOfEach((url: ServerUrl | undefined) => url === undefined, unreadable)(urls)
        : checks.flatMap((check) => check(readable));
    for (const message of faults) context.addIssue({ code: "custom", message });
  });
}

const faultOfEach =
  <Url>(isFault: (url: Url) => unknown, fault: string) =>
  (all: readonly Url[]): string[] =>
    all.flatMap((url, index) =>
      isFault(url) ? [`${all.length === 1 ? "the value" : `URL ${index + 1}`} ${fault}`] : [],
    );

const each = faultOfEach<ServerUrl>;

const differs = (all: readonly ServerUrl[], partOf: (url: ServerUrl) => string): boolean =>
  new Set(all.map(partOf)).size > 1;

const sameAccess: Check = (all) => [
  ...(differs(all, ({ protocol }) => protocol)
    ? ["all URLs must have the same protocol: one without TLS is open"]
    : []),
  ...(differs(all, ({ user, password }) => JSON.stringify([user, password]))
    ? ["all URLs must have the same user and password"]
    : []),
];

const single: Check = (all) => (all.length > 1 ? ["must be one URL"] : []);

const hasHost = each(({ host }) => host === "", "names no host");
const noExtras = each(({ url }) => url.search || url.hash, "has a query or a fragment, which is not used");
const noPath = each(({ url }) => url.pathname.length > 1, "has a path, which is not used");
const numberPath = each(({ url }) => !/^\/?\d*$/.test(url.pathname), "has a path that is not the number of a database");
const noUserAlone = each(({ user, password }) => user !== "" && password === "", "has a user and no password");
const noCredentials = each(({ user, password }) => user || password, "has a user or a password, which is not used");

const noDatabase = each(
  ({ url }) => Number(url.pathname.slice(1)) > 0,
  "names a database: a Redis Cluster has only database 0",
);
const clusterDatabase: Check = (all) => (all.length === 1 ? [] : noDatabase(all));

const plainRedis = [noExtras, numberPath, clusterDatabase, noUserAlone];

/** Configuration adds `ca` later. */
const SENTINEL_PARAMETERS = new Set(["sentinel_user", "sentinel_password"]);

/** Returns undefined if an escape is broken. */
function sentinelParameters({ url }: ServerUrl) {
  try {
    const { sentinelUser, sentinelPassword } = parseSentinelUrl(url.href);
    return { sentinelUser, sentinelPassword };
  } catch {
    return undefined;
  }
}

const sentinelChecks = [
  each(
    ({ url }) => !/^\/[\w.-]+(\/\d*)?$/.test(url.pathname),
    "has a path that is not /name or /name/database; the name of a master has letters, digits, dots, hyphens and underscores",
  ),
  each(
    ({ url }) => url.hash || [...url.searchParams.keys()].some((name) => !SENTINEL_PARAMETERS.has(name)),
    "has a fragment, or query parameters other than sentinel_user and sentinel_password",
  ),
  each((url) => sentinelParameters(url) === undefined, "has a query parameter that is not percent-encoded"),
  each((url) => {
    const credentials = sentinelParameters(url);
    return credentials && credentials.sentinelUser !== "" && credentials.sentinelPassword === "";
  }, "has a sentinel_user and no sentinel_password"),
  noUserAlone,
];

const sameMaster: Check = (all) =>
  differs(all, ({ url }) => url.pathname + url.search) ? ["all sentinels must have the same master and password"] : [];

const redisOrSentinels: Check = (all) =>
  namesSentinels(all.map(({ protocol }) => protocol))
    ? [...sentinelChecks.flatMap((check) => check(all.slice(0, 1))), ...sameMaster(all)]
    : plainRedis.flatMap((check) => check(all));

/** Each process connects to every master: 16 Clusters have up to 8,000. */
export const MOST_CLUSTERS = 16;

/** A URL of several sentinels becomes one of each. */
const eachSentinel = z.string().transform((text) => {
  const [, head, hosts = "", tail] = /^\s*(rediss?\+sentinel:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/.exec(text) ?? [];
  if (head === undefined) return text;
  const named = hosts.split(",").map((host) => host.trim());
  return named.map((host) => `${head}${host}${tail}`).join(",");
});

const oneRedis = eachSentinel.pipe(
  urls(["redis:", "rediss:", "redis+sentinel:", "rediss+sentinel:"], ...[hasHost, redisOrSentinels, sameAccess]),
);

const oneOfClusters = urls(
  ["redis:", "rediss:"],
  ...[hasHost, noExtras, numberPath, noDatabase, noUserAlone, sameAccess],
);

/** Semicolons separate Redis Clusters. */
export const redisUrls = z.string().transform((text, context): string[] => {
  const parts = text.split(";");
  if (parts.length > MOST_CLUSTERS)
    context.addIssue({ code: "custom", message: `must name at most ${MOST_CLUSTERS} Redis Clusters` });
  const named = parts.map((part, index) => {
    const { data = [], error } = (parts.length > 1 ? oneOfClusters : oneRedis).safeParse(part);
    const prefix = parts.length > 1 ? `Redis Cluster ${index + 1}: ` : "";
    for (const { message } of error?.issues ?? []) context.addIssue({ code: "custom", message: prefix + message });
    return index === 0 ? data : data.map((url) => `${url}?${CLUSTER}=${index + 1}`);
  });
  const all = named.flat();
  if (parts.length > 1 && new Set(all.map(printableAddress)).size < all.length)
    context.addIssue({ code: "custom", message: "two Redis Clusters must not have the same server" });
  return all;
});

/** A user without a password is a token, as in other NATS clients. */
export const natsUrls = urls(["nats:", "tls:"], hasHost, noExtras, noPath, sameAccess);

/** The driver obeys only these parameters: target_session_attrs, which it ignores, would seem to hold. */
const PG_PARAMETERS = new Set([
  ...["host", "port", "options", "application_name", "sslmode", "sslcert", "sslkey", "sslrootcert"],
  ...["sslnegotiation", "uselibpqcompat"],
]);
const SSL_MODES = ["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"];

const parameters = ({ url }: ServerUrl): URLSearchParams => url.searchParams;
const postgresChecks = [
  each(
    (url) => [...parameters(url).keys()].some((name) => !PG_PARAMETERS.has(name)),
    "has query parameters that are not used",
  ),
  each(
    (url) => !SSL_MODES.includes(parameters(url).get("sslmode") ?? "prefer"),
    `has an sslmode that is none of ${SSL_MODES.join(", ")}`,
  ),
  each(({ url }) => url.hash, "has a fragment, which is not used"),
  each((url) => url.host === "" && !parameters(url).has("host"), "names no host"),
];

const first = ([url]: readonly string[]): string => url as string;

export const databaseUrl = urls(["postgres:", "postgresql:"], single, ...postgresChecks).transform(first);

export const webUrl = urls(["https:", "http:"], single, noCredentials).transform(first);

export const webOrigin = urls(["https:", "http:"], single, noCredentials, noExtras, noPath).transform(first);

/** Ids begin with it: it has no "/" at its end. */
export const publicUrl = urls(["https:", "http:"], single, noCredentials, noExtras)
  .transform(first)
  .transform((text) => new URL(text).href.replace(/\/+$/, ""));

const UNRESERVED = /[A-Za-z0-9\-._~]/;

/**
 * Returns the one form in which URIs of http and https are stored and compared: scheme and host in lower case and in
 * ASCII, no default port, no dot segments, a path, and only such escapes as are needed, in upper case. Everything else
 * stays as it is.
 */
export function normalUri(text: string): string {
  if (!/^https?:\/\/[^\s/?#]/i.test(text) || /[\p{Cc}\s]/u.test(text) || !text.isWellFormed()) return text;
  const href = parseUrl(text)?.href;
  if (href === undefined) return text;
  return href.replace(/%[0-9a-f]{2}/gi, (code) => {
    const character = String.fromCharCode(Number.parseInt(code.slice(1), 16));
    return UNRESERVED.test(character) ? character : code.toUpperCase();
  });
}

/** Returns the path before ours, without "/" at its end, if a proxy serves us behind one. */
export const prefixOf = (url: string | undefined): string =>
  url === undefined ? "" : new URL(url).pathname.replace(/\/$/, "");

/** URL.canParse of Node 20 refuses Latin letters beyond ASCII once V8 has optimized its caller. */
export function parseUrl(text: string): URL | undefined {
  try {
    return new URL(text);
  } catch {
    return undefined;
  }
}
