import { parseServerUrl, type ServerUrl } from "./server-url.js";
import { nonEmptyList } from "./variables.js";

interface Entry extends ServerUrl {
  readonly url: URL;
}

type Rule = (entries: readonly Entry[]) => readonly string[];

/** A fault names the position, never the value: a text that cannot be parsed may be a password. */
function urls(protocols: readonly string[], rule: Rule) {
  return nonEmptyList.superRefine((parts, context) => {
    const fault = (message: string): void => context.addIssue({ code: "custom", message });
    const entries = parts.flatMap((part) => entryOf(part, protocols) ?? []);
    if (entries.length === parts.length) return rule(entries).forEach(fault);
    const names = protocols.map((name) => `${name}//`).join(" or ");
    parts.forEach((part, at) => {
      if (!entryOf(part, protocols))
        fault(`${place(at, parts)} is not a URL of ${names}; special characters of a password are percent-encoded`);
    });
  });
}

function entryOf(text: string, protocols: readonly string[]): Entry | undefined {
  try {
    const url = new URL(text);
    return protocols.includes(url.protocol) ? { ...parseServerUrl(text), url } : undefined;
  } catch {
    return undefined;
  }
}

const place = (at: number, all: readonly unknown[]): string => (all.length === 1 ? "the value" : `URL ${at + 1}`);

const eachOf =
  (check: (entry: Entry) => string | undefined): Rule =>
  (entries) =>
    entries.flatMap((entry, at) => {
      const fault = check(entry);
      return fault === undefined ? [] : [`${place(at, entries)} ${fault}`];
    });

const oneWayIn: Rule = (entries) => {
  const faults: string[] = [];
  const differs = (of: (entry: Entry) => string): boolean => new Set(entries.map(of)).size > 1;
  if (differs(({ protocol }) => protocol)) faults.push("all URLs must have the same protocol: one without TLS is open");
  if (differs(({ user, password }) => JSON.stringify([user, password])))
    faults.push("all URLs must have the same user and password");
  return faults;
};

const hasHost = eachOf(({ host }) => (host === "" ? "names no host" : undefined));
const noExtras = eachOf(({ url }) =>
  url.search || url.hash ? "has a query or a fragment, which is not used" : undefined,
);
const noPath = eachOf(({ url }) => (url.pathname.length > 1 ? "has a path, which is not used" : undefined));
const all =
  (...rules: readonly Rule[]): Rule =>
  (entries) =>
    rules.flatMap((rule) => rule(entries));

const redisDatabase: Rule = (entries) =>
  eachOf(({ url }) => {
    if (!/^\/?\d*$/.test(url.pathname)) return "has a path that is not the number of a database";
    const chosen = Number(url.pathname.slice(1));
    return entries.length > 1 && chosen > 0 ? "names a database: a Redis Cluster has only database 0" : undefined;
  })(entries);

const redisUser = eachOf(({ user, password }) =>
  user !== "" && password === "" ? "has a user and no password" : undefined,
);

export const redisUrls = urls(["redis:", "rediss:"], all(hasHost, noExtras, redisDatabase, redisUser, oneWayIn));

/** A user without a password is a token, as in other NATS clients. */
export const natsUrls = urls(["nats:", "tls:"], all(hasHost, noExtras, noPath, oneWayIn));

/** Only parameters that the driver obeys: target_session_attrs, which it ignores, would seem to hold. */
const PG_PARAMETERS = new Set([
  ...["host", "port", "options", "application_name", "sslmode", "sslcert", "sslkey", "sslrootcert"],
  ...["sslnegotiation", "uselibpqcompat"],
]);
const SSL_MODES = new Set(["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"]);

const postgresParameters: Rule = ([entry]) => {
  if (!entry) return [];
  const { searchParams, hash } = entry.url;
  const unused = [...searchParams.keys()].filter((name) => !PG_PARAMETERS.has(name));
  const faults = unused.length > 0 ? ["the value has query parameters that are not used"] : [];
  const mode = searchParams.get("sslmode");
  if (mode !== null && !SSL_MODES.has(mode)) faults.push(`sslmode must be one of ${[...SSL_MODES].join(", ")}`);
  if (hash) faults.push("the value has a fragment, which is not used");
  if (entry.host === "" && !searchParams.has("host")) faults.push("the value names no host");
  return faults;
};

const single: Rule = (entries) => (entries.length > 1 ? ["must be one URL"] : []);

export const databaseUrl = urls(["postgres:", "postgresql:"], all(single, postgresParameters)).transform(first);

const noCredentials = eachOf(({ user, password }) =>
  user || password ? "has a user or a password, with which no key set is fetched" : undefined,
);

export const webUrl = urls(["https:", "http:"], all(single, noCredentials)).transform(first);

function first(parts: readonly string[]): string {
  return parts[0] as string;
}
