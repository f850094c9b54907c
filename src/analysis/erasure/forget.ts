import type { AnalysisRequest } from "../../contracts/analysis.js";
import { pause, SECOND } from "../../kernel/time.js";
import { type Erased, endStep, type Forget } from "../../state/index.js";
import type { Requests } from "../requests.nats.js";
import type { ErasedMessages } from "./messages.nats.js";
import type { ErasedRows } from "./rows.sql.js";

interface ForgetDeps {
  readonly rows: ErasedRows;
  readonly requests: Pick<Requests, "about" | "remove" | "removeFromLists" | "removeAllOf">;
  readonly messages: Pick<ErasedMessages, "removeQueued" | "removeEvents">;
  readonly removeKeys: (user: string) => Promise<void>;
  readonly erased: Pick<Erased, "reports">;
  readonly settleMs?: number | undefined;
}

/**
 * Writers look for the marker, write a moment later, and look again. What a process wrote that was killed in between is
 * there by then.
 */
const SETTLE_MS = 2 * SECOND;
const FACTS_AT_ONCE = 10_000;

/** Lists go before facts and rows, which lead to them. Nothing leads to events. */
export function createForget(deps: ForgetDeps): Forget {
  const { rows, requests, messages, removeKeys, erased, settleMs = SETTLE_MS } = deps;
  const removeRows: Forget = async (user, { stopping, left: report }) => {
    let count = await rows.count(user);
    for (let keys = await rows.some(user); keys.length > 0; keys = await rows.some(user)) {
      await report(count);
      await requests.removeFromLists(keys.filter(({ user_id }) => user_id !== user));
      await rows.remove(keys);
      count = Math.max(0, count - keys.length);
      await endStep("some rows", stopping);
    }
  };
  const removeFacts = async (user: string, stopping: AbortSignal): Promise<void> => {
    // A reader waits for keys that are removed ahead of it: each pass reads first.
    for (let keys = await requests.about(user, FACTS_AT_ONCE); keys.length > 0; ) {
      await requests.remove(keys);
      await endStep("some facts", stopping);
      keys = keys.length < FACTS_AT_ONCE ? [] : await requests.about(user, FACTS_AT_ONCE);
    }
    await requests.removeAllOf(user);
  };
  return async (user, context) => {
    const { stopping } = context;
    await rows.refuse(user, stopping);
    await pause(settleMs, stopping);
    await endStep("marked", stopping);
    await messages.removeQueued(user, stopping);
    await endStep("queue", stopping);
    await removeFacts(user, stopping);
    await endStep("facts", stopping);
    await removeRows(user, context);
    await removeKeys(user);
    await endStep("rows", stopping);
    const rewards = (await erased.reports(user)).has("rewards");
    await messages.removeEvents(user, { rewards, stopping });
    await endStep("events", stopping);
  };
}

interface LateDeps {
  readonly erased: Pick<Erased, "among">;
  readonly requests: Pick<Requests, "remove" | "removeAllOf">;
  readonly removeKeys: (user: string) => Promise<void>;
}

/** Removes the facts of a request by or about an erased user, and their keys in Redis. */
export type ForgetRequest = (request: Pick<AnalysisRequest, "analysis_id" | "user_id" | "did">) => Promise<void>;

export const createForgetRequest =
  ({ erased, requests, removeKeys }: LateDeps): ForgetRequest =>
  async (request) => {
    const gone = await erased.among([request.user_id, request.did]);
    await (gone.has(request.user_id) ? requests.removeAllOf(request.user_id) : requests.remove([request]));
    await Promise.all([...gone].map(removeKeys));
  };
