import { AppError, oneLine } from "../../kernel/errors.js";
import { isTlsFault, Refusal } from "../refusals.js";

/**
 * Replies that say something about one command and not about the server's
 * state. Everything else (connection, time-out, LOADING, READONLY, OOM,
 * CLUSTERDOWN, MOVED, BUSY, NOREPLICAS, MISCONF, LATE ...) is an outage.
 */
const ABOUT_THE_COMMAND = /^(WRONGTYPE|CROSSSLOT|ERR )/;
/** Replies about who we are: no password, a wrong one, or a right that the user lacks. */
const ABOUT_US = /^(NOAUTH|WRONGPASS|NOPERM|ERR (AUTH|invalid password|Client sent AUTH))/;
/** Redis 6 wraps what a script ran into in an ERR of its own. */
const WRAPPED_OUTAGE = /\b(OOM|READONLY|LOADING|CLUSTERDOWN|MASTERDOWN|MISCONF|NOREPLICAS|MOVED|TRYAGAIN)\b/;

/** Turns what ioredis rejects with into an error of ours. */
export function redisError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const text = oneLine(error);
  if (ABOUT_US.test(text)) return new Refusal(`Redis: ${text}`, { cause: error });
  if (isTlsFault(error)) return new Refusal(`Redis: TLS failed: ${text}`, { cause: error });
  const code = ABOUT_THE_COMMAND.test(text) && !WRAPPED_OUTAGE.test(text) ? "failed" : "unavailable";
  return new AppError(code, `Redis: ${text}`, { cause: error });
}
