import { AppError, oneLine } from "../../kernel/errors.js";
import { isTlsFault, Refusal } from "../refusals.js";
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

/** A user or password that is not taken, a database that is not there. */
const TURNED_AWAY = /^(28...|3D000)$/;
/** What the driver, or a pooler (under a code it uses for outages too), says in words only. */
const TURNED_AWAY_IN_WORDS = /server does not support SSL connections|unsupported startup parameter/;

/** Lost against another transaction; the same may well succeed now. */
export function isConflict(error: unknown): boolean {
  const state = sqlState(error);
  return state === "40001" || state === "40P01";
}

/** Turns what says that the database is away into `unavailable`; leaves everything else as it is. */
export function databaseError(error: unknown): unknown {
  const { code, message = "" } = error as { code?: string; message?: string };
  const state = sqlState(error);
  if ((state !== undefined && TURNED_AWAY.test(state)) || isTlsFault(error) || TURNED_AWAY_IN_WORDS.test(message))
    return new Refusal(`the database turns us away: ${oneLine(error)}`, { cause: error });
  const away = SOCKET.has(code ?? "") || (state === undefined ? WORDS.test(message) : AWAY.test(state));
  return away ? new AppError("unavailable", `the database is away: ${oneLine(error)}`, { cause: error }) : error;
}
