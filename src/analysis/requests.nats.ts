import type { AnalysisRequest } from "../contracts/analysis.js";
import { AppError } from "../kernel/errors.js";
import { dateOfId, encodeId } from "../kernel/ids.js";
import type { Bucket } from "./bucket.nats.js";
import type { Facts, FailedFact, RequestFact } from "./saga.js";

type Started = RequestFact & { readonly started_at: string };

export type Requests = ReturnType<typeof createRequests>;

const dayOf = (analysis: string): string => new Date(dateOfId(analysis) ?? 0).toISOString().slice(0, 10);

const listKey = (userToken: string): string => `r.${userToken}.ids`;

/** Analyses that are older are listed once they are completed. */
const LISTED = 1_000;
/** The requests of one user conflict far less often. */
const MAX_CONFLICTS = 1_000;

/** The day is in the id, which is a UUIDv7: operators find the key of an analysis by it. */
const keyOf = (userToken: string, analysis: string, fact: "requested" | "started" | "failed" | "*"): string =>
  `r.${userToken}.${dayOf(analysis)}.${analysis}.${fact}`;

/**
 * The facts about analyses are kept here until they have a row. Everything rejects with AppError `unavailable` while
 * NATS is away.
 */
export function createRequests(bucket: Bucket) {
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
  /**
   * The list has one key a user: STREAM.INFO with `subjects_filter` makes nats-server 2.9 look through all facts of
   * everybody.
   */
  const listOf = async (token: string) => {
    const entry = await bucket.get(listKey(token));
    return { ids: (entry?.value ?? []) as readonly string[], revision: entry?.revision ?? 0 };
  };
  const addToList = async (token: string, analysis: string): Promise<void> => {
    for (let attempt = 0; attempt < MAX_CONFLICTS; attempt++) {
      const { ids, revision } = await listOf(token);
      if (ids.includes(analysis)) return;
      const newest = [...ids, analysis].sort().reverse().slice(0, LISTED);
      // Each conflict is another request that was added.
      if (await bucket.replace(listKey(token), newest, revision)) return;
    }
    throw new AppError("unavailable", "the list of a user changes too often");
  };
  return {
    /** Adds it to the user's list, too. Changes nothing where it is recorded. */
    async record(fact: RequestFact): Promise<void> {
      const token = encodeId(fact.user_id);
      await Promise.all([
        bucket.create(keyOf(token, fact.analysis_id, "requested"), fact),
        addToList(token, fact.analysis_id),
      ]);
    },
    /** The first start counts. */
    async start(request: RequestFact, at: number): Promise<void> {
      const started: Started = { ...request, started_at: new Date(at).toISOString() };
      const token = encodeId(request.user_id);
      // A process of an earlier version, which took the request, keeps no lists.
      await addToList(token, request.analysis_id);
      await bucket.create(keyOf(token, request.analysis_id, "started"), started);
    },
    /** Returns the failure that stands: after a crash the next attempt repeats it. */
    async fail(request: AnalysisRequest, failure: FailedFact): Promise<FailedFact> {
      const { key, held } = await failureOf(request);
      if (held !== undefined && held.redrives === failure.redrives) return held;
      await bucket.put(key, failure);
      return failure;
    },
    /** Marks the failure of an analysis that is completed now: operators ask no database. */
    async overcome(request: AnalysisRequest): Promise<void> {
      const { key, held } = await failureOf(request);
      if (held !== undefined && !held.overcome) await bucket.put(key, { ...held, overcome: true });
    },
    find: (user: string, analysis: string) => find(encodeId(user), analysis),
    /** Resolves to the ids of the newest that the user asked for, at most LISTED, newest first. */
    listed: async (user: string) => (await listOf(encodeId(user))).ids,
    /** Resolves to the users of an analysis: one, or none where it is unknown. */
    async userTokensOf(analysis: string): Promise<string[]> {
      const keys = await bucket.keys(keyOf("*", analysis, "*"));
      return [...new Set(keys.map((key) => key.split(".")[1] as string))];
    },
  };
}
