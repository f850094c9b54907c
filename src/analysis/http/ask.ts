import { v7 } from "uuid";
import { type AnalysisRequest, isAtLeast, statusPath } from "../../contracts/analysis.js";
import { codeOf } from "../../kernel/errors.js";
import { fingerprint } from "../../kernel/ids.js";
import { Problem } from "../../kernel/problem.js";
import { sharedNow } from "../../kernel/time.js";
import { type Quota, quotaHeaders, type RateLimit } from "../../state/index.js";
import { observeHttp } from "../observe.js";
import type { RequestFact } from "../saga.js";
import type { ErasedRefusals } from "./erased.redis.js";
import type { Accepted, IdempotencyKeys, KeptAnswer } from "./idempotency.nats.js";

interface AskDeps {
  readonly keys: IdempotencyKeys;
  readonly limit: RateLimit;
  readonly estimate: () => number;
  /** Resolves after the PubAck to the sequence of the message. */
  readonly publish: (request: AnalysisRequest) => Promise<number>;
  readonly record: (fact: RequestFact) => Promise<void>;
  readonly erased: Pick<ErasedRefusals, "refuse" | "refuseWritten">;
}

type Asked = Pick<AnalysisRequest, "user_id" | "did" | "type" | "tier"> & { readonly key: string | undefined };

interface AskResult {
  readonly answer: Accepted;
  /** The quota is undefined while Redis is unavailable. */
  readonly quota: Quota | undefined;
}

/** @throws Problem; AppError `unavailable`, `gone` for an erased user, `notfound` for an erased account */
export type Ask = (asked: Asked) => Promise<AskResult>;

export function createAsk({ keys, limit, estimate, publish, record, erased }: AskDeps): Ask {
  return async ({ key, ...asked }) => {
    const { user_id: user, did, type, tier } = asked;
    // The body may have come long after the caller was looked up.
    await erased.refuse(asked);
    if (type === "full" && !isAtLeast(tier, "LIFT")) throw new Problem(403, "type: full needs the tier LIFT or higher");
    const fresh = answerTo(key === undefined ? "" : fingerprint(JSON.stringify([did, type])), estimate());
    const earlier = key === undefined ? undefined : await keys.find(user, key);
    refuseOther(earlier, fresh);
    if (earlier?.accepted) return { answer: earlier.answer, quota: await limit.look(user, tier) };
    // Requests with one key take one slot between them.
    const slot = key === undefined ? fresh.answer.analysis_id : `key:${fingerprint(key)}`;
    const quota = await limit.take(user, tier, slot);
    if (quota?.counted === false) throw tooMany(quota);
    try {
      const kept = key === undefined ? fresh : await keys.claim(user, key, fresh);
      refuseOther(kept, fresh);
      const { analysis_id, estimated_completion } = kept.answer;
      const request = { analysis_id, ...asked, requested_at: kept.at };
      try {
        const request_seq = await publish(request);
        await record({ ...request, estimated_completion, request_seq });
        if (key !== undefined) await keys.accepted(user, key, kept);
      } finally {
        await erased.refuseWritten(request);
      }
      if (kept === fresh || earlier) observeHttp.accepted(tier, quota !== undefined);
      return { answer: kept.answer, quota };
    } catch (error) {
      if (["unavailable", "notfound"].includes(codeOf(error))) await limit.giveBack(user, slot);
      throw error;
    }
  };
}

function answerTo(body: string, estimateMs: number): KeptAnswer {
  const now = sharedNow();
  const id = v7();
  const answer = {
    analysis_id: id,
    status: "queued",
    estimated_completion: new Date(now + estimateMs).toISOString(),
    status_url: statusPath(id),
  } as const;
  return { at: new Date(now).toISOString(), body, answer, accepted: false };
}

function refuseOther(kept: KeptAnswer | undefined, { body }: KeptAnswer): void {
  if (kept && kept.body !== body) throw new Problem(422, "the Idempotency-Key was used with another body");
}

function tooMany(quota: Quota): Problem {
  const headers = { ...quotaHeaders(quota), "Retry-After": String(quota.resetSeconds) };
  return new Problem(429, `at most ${quota.limit} analyses within an hour`, { headers });
}
