import { AppError, oneLine } from "../../kernel/errors.js";
import { backoff, pause } from "../../kernel/time.js";
import { isTlsFault, Refusal } from "../refusals.js";

/** PostgreSQL lists these codes in Appendix A. */
export const SQLSTATE = {
  uniqueViolation: "23505",
  /** The row breaks a CHECK, or has no partition. */
  checkViolation: "23514",
  lockNotAvailable: "55P03",
  /** The server is a standby, or was told to take no writes. */
  readOnly: "25006",
  undefinedTable: "42P01",
  insufficientPrivilege: "42501",
  /** A function of the migrations used RAISE. */
  raised: "P0001",
} as const;

export function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

/** A process may read before the first one with the role has made the tables. */
export async function unlessNoTable<Result>(read: Promise<Result>, none: Result): Promise<Result> {
  try {
    return await read;
  } catch (error) {
    if (sqlState(error) === SQLSTATE.undefinedTable) return none;
    throw error;
  }
}

/**
 * The codes name connection exceptions, insufficient resources, shutdown, a read-only standby, or a timeout of a lock
 * or a statement.
 */
const AWAY = /^(08...|53...|57P0.|57014|25006|55P03)$/;

const SOCKET_ERRORS = new Set(["ECONNREFUSED", "ECONNRESET", "EPIPE", "ETIMEDOUT", "ENOTFOUND", "EAI_AGAIN", "ENOENT"]);

const AWAY_MESSAGES =
  /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|Query read timeout/;

/**
 * The codes name connection exceptions, shutdown, a server that takes no writes (any more), and statements that were
 * prepared for another schema or session. Only another connection may help, as after an error of the driver itself.
 */
const OF_NO_USE = /^(08...|57P0.|25006|0A000|26000)$/;

export const isOfNoUse = (error: unknown): boolean => OF_NO_USE.test(sqlState(error) ?? "08000");

const REFUSED = /^(28...|3D000|42501)$/;
/** Advice beside that of a wrong user, password or certificate. */
const ADVICE: Readonly<Record<string, string>> = {
  "3D000": "create the database, or correct its name in DATABASE_URL",
  [SQLSTATE.insufficientPrivilege]:
    "grant the role of DATABASE_URL what it lacks, or let it own the schemas of the service",
};
/** The driver sends these errors, or a pooler under a code that it uses for outages, too. */
const REFUSED_MESSAGES = /server does not support SSL connections|unsupported startup parameter/;

/** The codes name serialization failures and deadlocks. */
const CONFLICT = /^(40001|40P01)$/;

const UNAVAILABLE = "the database is unavailable";

/** Outages become AppError `unavailable`, refusals Refusal; other errors stay. */
export function databaseError(error: unknown): unknown {
  const { code, message = "" } = error as { code?: string; message?: string };
  const state = sqlState(error);
  if ((state !== undefined && REFUSED.test(state)) || isTlsFault(error) || REFUSED_MESSAGES.test(message))
    return new Refusal(
      `the database refuses ${state === SQLSTATE.insufficientPrivilege ? "a statement" : "the connection"}: ${oneLine(error)}`,
      {
        cause: error,
        publicMessage: UNAVAILABLE,
        ...(state && ADVICE[state] ? { advice: ADVICE[state] } : {}),
      },
    );
  const away = SOCKET_ERRORS.has(code ?? "") || (state === undefined ? AWAY_MESSAGES.test(message) : AWAY.test(state));
  if (!away) return error;
  return new AppError("unavailable", `${UNAVAILABLE}: ${oneLine(error)}`, { cause: error, publicMessage: UNAVAILABLE });
}

const MAX_TRIES = 5;
const BASE_MS = 5;
const CAP_MS = 100;

export async function retryConflicts<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!CONFLICT.test(sqlState(error) ?? "") || tries === MAX_TRIES) throw databaseError(error);
      await pause(backoff(tries, BASE_MS, CAP_MS));
    }
  }
}
