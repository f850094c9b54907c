import { backoff, pause } from "../../kernel/time.js";
import { databaseError, isConflict } from "./errors.js";

/** A transaction that lost this often in a row is given up. */
const MAX_TRIES = 5;
const BASE_MS = 5;
const CAP_MS = 100;

/** Runs work against the database, again where it lost against another transaction. */
export async function attempted<Result>(work: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!isConflict(error) || tries === MAX_TRIES) throw databaseError(error);
      await pause(backoff(tries, BASE_MS, CAP_MS));
    }
  }
}
