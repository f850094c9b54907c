import { AppError, oneLine } from "../../kernel/errors.js";
import { sqlState } from "./db.js";

/**
 * Classes and codes that say the database is away, starting, stopping or full, and nothing of the statement
 * (PostgreSQL, Appendix A): connection exceptions, insufficient resources, shutdown, a standby that is read-only.
 */
const AWAY = /^(08...|53...|57P0.|25006|55P03)$/;

/** What Node says where there is no server, or no longer. */
const SOCKET = new Set(["ECONNREFUSED", "ECONNRESET", "EPIPE", "ETIMEDOUT", "ENOTFOUND", "EAI_AGAIN", "ENOENT"]);

/** What `pg` says in words only. */
const WORDS = /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error/;

/** Lost against another transaction; the same may well succeed now. */
export function isConflict(error: unknown): boolean {
  const state = sqlState(error);
  return state === "40001" || state === "40P01";
}

/** Turns what says that the database is away into `unavailable`; leaves everything else as it is. */
export function databaseError(error: unknown): unknown {
  const { code, message = "" } = error as { code?: string; message?: string };
  const state = sqlState(error);
  const away = state === undefined ? SOCKET.has(code ?? "") || WORDS.test(message) : AWAY.test(state);
  return away ? new AppError("unavailable", `the database is away: ${oneLine(error)}`, { cause: error }) : error;
}
