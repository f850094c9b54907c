import { Redis } from "ioredis";
import { printableAddress } from "../kernel/server-url.js";
import { serverOf } from "../platform/redis/connect.js";
import { redisError } from "../platform/redis/errors.js";
import { type Check, checked, compareVersions, type Finding } from "./doctor.js";

const OLDEST = "6.2.0";

/** Checks each Redis named: reachable, new enough, and keeping what it is given. */
export function redisChecks(urls: readonly string[], allowEviction: boolean): Check[] {
  return urls.map((url) => {
    const what = `Redis ${printableAddress(url)}`;
    return checked(what, "start Redis there, or set REDIS_URL to where it is", () => look(what, url, allowEviction));
  });
}

async function look(what: string, url: string, allowEviction: boolean): Promise<readonly Finding[]> {
  const redis = new Redis({
    ...serverOf([url]),
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    connectTimeout: 3_000,
    retryStrategy: () => null,
  });
  let reason: Error | undefined;
  redis.on("error", (error) => {
    reason = error;
  });
  try {
    // A connection that ends does not say itself why.
    await redis.connect().catch((error: Error) => Promise.reject(redisError(reason ?? error)));
    const info = await redis.info();
    const field = (name: string): string => new RegExp(`^${name}:(.*)$`, "m").exec(info)?.[1]?.trim() ?? "";
    const version = field("valkey_version") || field("redis_version");
    return [
      versionFinding(what, version),
      policyFinding(what, field("maxmemory_policy"), allowEviction),
      persistenceFinding(what, field("aof_enabled")),
    ];
  } finally {
    redis.disconnect();
  }
}

function versionFinding(what: string, version: string): Finding {
  if (compareVersions(version, OLDEST) >= 0) return { what, state: "ok", says: `version ${version}` };
  return {
    what,
    state: "fault",
    says: `version ${version}`,
    advice: `use ${OLDEST} or newer: ZADD LT and ZMSCORE are needed`,
  };
}

function policyFinding(what: string, policy: string, allowEviction: boolean): Finding {
  if (policy === "noeviction") return { what, state: "ok", says: `maxmemory-policy ${policy}` };
  if (policy === "") {
    const advice = "let INFO memory be asked, and make sure that maxmemory-policy is noeviction";
    return { what, state: "warning", says: "does not say its maxmemory-policy", advice };
  }
  const says = `maxmemory-policy ${policy}`;
  if (allowEviction)
    return { what, state: "warning", says: `${says}, as TIMELINE_REDIS_ALLOW_EVICTION allows`, advice: NOEVICTION };
  return { what, state: "fault", says, advice: NOEVICTION };
}

const NOEVICTION = "set maxmemory-policy noeviction: timelines, tombstones and follow versions must not be evicted";

function persistenceFinding(what: string, aof: string): Finding {
  if (aof === "1") return { what, state: "ok", says: "appendonly yes" };
  const advice = "set appendonly yes: without it a restart loses the timelines, and each is rebuilt when it is read";
  return { what, state: "warning", says: "appendonly no", advice };
}
