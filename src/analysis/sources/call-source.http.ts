import { AppError, oneLine } from "../../kernel/errors.js";
import type { TokenBucket } from "../../state/index.js";
import { createOutcomes, FAULTS } from "../../upstreams/faults.js";
import { TooManyRequests, Unreachable, Unreadable } from "./bounded-fetch.http.js";
import { AccountGone } from "./source.js";

interface About {
  readonly account: string;
  /** The call takes a share of this user's calls to the source. */
  readonly user: string;
}

type SourceCall<Answer> = (signal: AbortSignal) => Promise<Answer>;

/** @throws AccountGone; AppError `unavailable` if all accounts have to wait, `failed` if only this one fails */
type CallSource = <Answer>(about: About, call: SourceCall<Answer>, signal: AbortSignal) => Promise<Answer>;

/** Each call takes a token. Judges by the calls made through it whether the source is unavailable. */
export function createCallSource(bucket: TokenBucket, timeoutMs: number): CallSource {
  // One is the most, since this takes a token, too.
  const outcomes = createOutcomes(1);

  const isFailing = async (account: string): Promise<boolean> => {
    outcomes.failed(account);
    const others = (await bucket.tryTake()) ? await outcomes.ask(account) : outcomes.latest();
    return FAULTS.error[others] !== "retry";
  };

  const rejected = async (account: string, error: unknown): Promise<unknown> => {
    if (isAnswer(error)) outcomes.answered(account);
    if (error instanceof AccountGone) return error;
    if (error instanceof TooManyRequests) await bucket.hold(error.waitMs);
    const isOutage =
      error instanceof TooManyRequests ||
      error instanceof Unreachable ||
      (!isAnswer(error) && (await isFailing(account)));
    const publicMessage = "the source did not answer for this account";
    return new AppError(isOutage ? "unavailable" : "failed", oneLine(error), { cause: error, publicMessage });
  };

  return async ({ account, user }, call, signal) => {
    await bucket.take(user, signal);
    try {
      const answer = await within(timeoutMs, call, signal);
      outcomes.answered(account, (deadline) => within(deadline - Date.now(), call, signal).catch(unlessAnswer));
      return answer;
    } catch (error) {
      if (signal.aborted) throw new AppError("unavailable", "the call ended with the process", { cause: error });
      throw await rejected(account, error);
    }
  };
}

/** An answer says something about the account, and nothing about the source. */
const isAnswer = (error: unknown): boolean => error instanceof AccountGone || error instanceof Unreadable;

function unlessAnswer(error: unknown): void {
  if (!isAnswer(error)) throw error;
}

/** The parent lives as long as the process: AbortSignal.any would leave something at it with each call. */
async function within<Answer>(ms: number, call: SourceCall<Answer>, parent: AbortSignal): Promise<Answer> {
  const ended = new AbortController();
  const end = (): void => ended.abort(parent.reason);
  const timer = setTimeout(() => ended.abort(new DOMException(`no answer within ${ms} ms`, "TimeoutError")), ms);
  parent.addEventListener("abort", end, { once: true });
  if (parent.aborted) end();
  try {
    return await call(ended.signal);
  } finally {
    clearTimeout(timer);
    parent.removeEventListener("abort", end);
  }
}
