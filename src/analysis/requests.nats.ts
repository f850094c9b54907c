import type { AnalysisRequest } from "../contracts/analysis.js";
import { dateOfId, encodeId } from "../kernel/ids.js";
import { DAY, sharedNow } from "../kernel/time.js";
import type { Bucket } from "./bucket.nats.js";
import { type Facts, type FailedFact, KEPT_DAYS, type RequestFact } from "./saga.js";

type Started = RequestFact & { readonly started_at: string };

/** Facts about analyses, until they have a row. Everything rejects with AppError `unavailable` while NATS is away. */
export interface Requests {
  /** Changes nothing where it is recorded. */
  record(fact: RequestFact): Promise<void>;
  /** The first start counts. */
  start(request: RequestFact, now: number): Promise<void>;
  /** Returns the failure that stands: after a crash the next attempt repeats it. */
  fail(request: AnalysisRequest, failure: FailedFact): Promise<FailedFact>;
  /** Marks the failure of an analysis that is completed now: operators ask no database. */
  overcome(request: AnalysisRequest): Promise<void>;
  find(user: string, analysis: string): Promise<Facts | undefined>;
  /** Newest first; `before` excludes that id and the newer ones. */
  list(user: string, page: { readonly limit: number; readonly before?: string | undefined }): Promise<Facts[]>;
  /** Users of an analysis: one, or none where it is unknown. */
  userTokensOf(analysis: string): Promise<string[]>;
}

const dayOf = (analysis: string): string => dayName(dateOfId(analysis) ?? 0);
const dayName = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** The day leads a list from the newest to the oldest; it is in the id, which is a UUIDv7. */
const keyOf = (userToken: string, analysis: string, fact: "requested" | "started" | "failed" | "*"): string =>
  `r.${userToken}.${dayOf(analysis)}.${analysis}.${fact}`;

export function createRequests(bucket: Bucket, now: () => number = sharedNow): Requests {
  const find = async (token: string, analysis: string): Promise<Facts | undefined> => {
    const [requested, started, failed] = await Promise.all([
      bucket.get(keyOf(token, analysis, "requested")),
      bucket.get(keyOf(token, analysis, "started")),
      bucket.get(keyOf(token, analysis, "failed")),
    ]);
    const { started_at: startedAt, ...begun } = (started?.value ?? {}) as Partial<Started>;
    const asked = requested?.value as RequestFact | undefined;
    if (asked === undefined && startedAt === undefined) return undefined;
    const request = { ...asked, ...begun } as RequestFact;
    return { request, startedAt, failed: failed?.value as FailedFact | undefined };
  };
  const failureOf = async ({ user_id, analysis_id }: AnalysisRequest) => {
    const key = keyOf(encodeId(user_id), analysis_id, "failed");
    return { key, held: (await bucket.get(key))?.value as FailedFact | undefined };
  };
  const idsOfDay = async (token: string, day: string): Promise<string[]> => {
    const keys = await bucket.keys(`r.${token}.${day}.>`);
    return [...new Set(keys.map((key) => key.split(".")[3] as string))].sort().reverse();
  };
  return {
    async record(fact) {
      await bucket.create(keyOf(encodeId(fact.user_id), fact.analysis_id, "requested"), fact);
    },
    async start(request, at) {
      const started: Started = { ...request, started_at: new Date(at).toISOString() };
      await bucket.create(keyOf(encodeId(request.user_id), request.analysis_id, "started"), started);
    },
    async fail(request, failure) {
      const { key, held } = await failureOf(request);
      if (held !== undefined && held.redrives === failure.redrives) return held;
      await bucket.put(key, failure);
      return failure;
    },
    async overcome(request) {
      const { key, held } = await failureOf(request);
      if (held !== undefined && !held.overcome) await bucket.put(key, { ...held, overcome: true });
    },
    find: (user, analysis) => find(encodeId(user), analysis),
    async list(user, { limit, before }) {
      const token = encodeId(user);
      const found: string[] = [];
      // Another process may be ahead of this clock.
      const newest = before === undefined ? now() + DAY : (dateOfId(before) ?? now());
      for (let day = 0; day <= KEPT_DAYS + 1 && found.length < limit; day++) {
        const ids = await idsOfDay(token, dayName(newest - day * DAY));
        found.push(...ids.filter((id) => before === undefined || id < before));
      }
      const facts = await Promise.all(found.slice(0, limit).map((id) => find(token, id)));
      return facts.filter((one) => one !== undefined);
    },
    async userTokensOf(analysis) {
      const keys = await bucket.keys(keyOf("*", analysis, "*"));
      return [...new Set(keys.map((key) => key.split(".")[1] as string))];
    },
  };
}
