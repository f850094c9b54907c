import { oneLine } from "../../kernel/errors.js";
import { TooManyRequests, Unreachable, Unreadable } from "./bounded-fetch.http.js";
import { AccountGone } from "./source.js";

// AppViews name these cases themselves, pass on what the server of an account says, or only describe them.
const GONE = [
  {
    code: "account_suspended",
    name: /^(Account|Actor|Did|Profile|Repo|User)(Takedown|Taken[dD]own|Suspended|Deactivated)$/,
    message: /^(account|repo|profile) (has been|is|was) (suspended|taken ?down|deactivated)/i,
  },
  {
    code: "account_unknown",
    name: /^(Account|Actor|Did|Profile|Repo|User)NotFound$/,
    message: /^((account|repo|profile|actor) not found|could not (find|resolve) |unable to resolve )/i,
  },
] as const;
/** These names alone say nothing about the account: other faults of a request have them, too. */
const DESCRIBED = /^(InvalidRequest|NotFound)$/;

/** The answer of an AppView refuses the request. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    /** The name is empty where the answer has none. */
    readonly error: string,
    message: string,
  ) {
    super(message);
  }
}

/** Reads the body of an answer that refuses. It is JSON {"error", "message"}, or anything. */
export function refusalOf(status: number, body: string): Refusal {
  try {
    const { error, message } = JSON.parse(body) as Readonly<Record<string, unknown>>;
    return new Refusal(status, typeof error === "string" ? error : "", typeof message === "string" ? message : "");
  } catch {
    return new Refusal(status, "", "");
  }
}

/** These statuses refuse who asks, or how, whatever the account: authorization, time, order. */
const OF_CALLER: ReadonlySet<number> = new Set([401, 403, 407, 408, 425]);

/** Returns AccountGone where the refusal says that the account is gone. */
export function reasonOf(error: unknown): unknown {
  if (!(error instanceof Refusal)) return error;
  const { status, error: name, message } = error;
  const gone =
    status >= 400 &&
    status < 500 &&
    GONE.find((known) => known.name.test(name) || (DESCRIBED.test(name) && known.message.test(message)));
  if (gone) return new AccountGone(gone.code, oneLine(message));
  const isOfAccount = status >= 400 && status < 500 && !OF_CALLER.has(status);
  return new (isOfAccount ? Unreadable : Error)(oneLine(`HTTP ${status} ${name}: ${message}`));
}

/** The label is an HTTP status, or says why there is none. */
export function resultOf(error: unknown): string {
  if (error instanceof Refusal || error instanceof TooManyRequests) return String(error.status);
  if (error instanceof Unreachable) return "unreachable";
  return (error as Error).name === "TimeoutError" ? "timeout" : "broken";
}
