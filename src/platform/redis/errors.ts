import { AppError, oneLine } from "../../kernel/errors.js";
import { isTlsFault, Refusal } from "../refusals.js";

// Each other reply (LOADING, READONLY, OOM, CLUSTERDOWN, MOVED, BUSY, NOREPLICAS, MISCONF, LATE ...) is an outage.
const ABOUT_THE_COMMAND = /^(WRONGTYPE|CROSSSLOT|ERR )/;
const ABOUT_US = /^(NOAUTH|WRONGPASS|ERR (AUTH|invalid password|Client sent AUTH))/;
/** Scripts get other words than callers do: before Redis 7.2 the second of these, which name no right. */
const LACKS_RIGHT = /^NOPERM|\bACL failure in script\b|\bThe user executing the script can't\b/;
/** Redis 6 wraps an error inside a script in an ERR of its own. A script meets a key that is not there while its slot moves. */
const WRAPPED_OUTAGE =
  /\b(OOM|READONLY|LOADING|CLUSTERDOWN|MASTERDOWN|MISCONF|NOREPLICAS|MOVED|TRYAGAIN|non local key|the cluster is down)\b/;

export const PUBLIC_MESSAGE = "Redis does not take a command";

/** The client's words for a command that it cannot send now. */
const NOT_CONNECTED = "Stream isn't writeable and enableOfflineQueue options is false";

const NAME_CLUSTER = "let REDIS_URL name nodes of a Redis Cluster: separate several Clusters by semicolons";

export const lacksRight = (error: unknown): boolean => LACKS_RIGHT.test(oneLine(error));

export function redisError(error: unknown, server = "Redis"): AppError {
  if (error instanceof AppError) return error;
  const text = oneLine(error);
  const options = { cause: error, publicMessage: PUBLIC_MESSAGE };
  if (ABOUT_US.test(text) || LACKS_RIGHT.test(text)) return new Refusal(`${server}: ${text}`, options);
  if (text.includes("cluster support disabled"))
    return new Refusal(`${server} is not a node of a Redis Cluster`, { ...options, advice: NAME_CLUSTER });
  if (isTlsFault(error)) return new Refusal(`${server}: TLS failed: ${text}`, options);
  const code = ABOUT_THE_COMMAND.test(text) && !WRAPPED_OUTAGE.test(text) ? "failed" : "unavailable";
  return new AppError(code, `${server}: ${text === NOT_CONNECTED ? "is not connected" : text}`, options);
}
