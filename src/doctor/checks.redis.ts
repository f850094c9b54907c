import { Redis } from "ioredis";
import { printableAddress } from "../kernel/server-url.js";
import { redisError, serverOf } from "../platform/redis/connect.js";
import { type Check, checked, type Finding, fault, isOlder, ok, warning } from "./doctor.js";

const OLDEST = "6.2.0";

export function redisChecks(urls: readonly string[], allowEviction: boolean): Check[] {
  return urls.map((url) => {
    const what = `Redis ${printableAddress(url)}`;
    return checked(what, "start Redis there, or set REDIS_URL to where it is", () =>
      examineRedis(what, url, allowEviction),
    );
  });
}

async function examineRedis(what: string, url: string, allowEviction: boolean): Promise<readonly Finding[]> {
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
    // The error of connect() does not name the reason; the event before it does.
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
  const says = `version ${version}`;
  if (!isOlder(version, OLDEST)) return ok(what, says);
  return fault(what, says, `use ${OLDEST} or newer: ZADD LT and ZMSCORE are needed`);
}

function policyFinding(what: string, policy: string, allowEviction: boolean): Finding {
  const says = `maxmemory-policy ${policy}`;
  if (policy === "noeviction") return ok(what, says);
  if (policy === "") {
    const advice = "allow INFO memory, and make sure that maxmemory-policy is noeviction";
    return warning(what, "does not say its maxmemory-policy", advice);
  }
  const advice = "set maxmemory-policy noeviction: timelines, tombstones and follow versions must not be evicted";
  if (allowEviction) return warning(what, `${says}, as TIMELINE_REDIS_ALLOW_EVICTION allows`, advice);
  return fault(what, says, advice);
}

function persistenceFinding(what: string, aof: string): Finding {
  if (aof === "1") return ok(what, "appendonly yes");
  const advice = "set appendonly yes: without it a restart loses the timelines, and each is rebuilt when it is read";
  return warning(what, "appendonly no", advice);
}
