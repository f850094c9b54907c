import { type AnalysisRequest, naming } from "../contracts/analysis.js";
import { parseJson } from "../contracts/events.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { dateOfId, encodeId } from "../kernel/ids.js";
import { createBatch } from "../kernel/sharing.js";
import type { Bucket } from "../platform/nats/bucket.js";
import type { Facts, FailedFact, RequestFact } from "./saga.js";

export type AnalysisKey = Pick<AnalysisRequest, "user_id" | "analysis_id">;
type Started = RequestFact & { readonly started_at: string };

export type Requests = ReturnType<typeof createRequests>;

const dayOfId = (analysis: string): string => new Date(dateOfId(analysis) ?? 0).toISOString().slice(0, 10);

const listKey = (userToken: string): string => `r.${userToken}.ids`;

/** Analyses that are older are listed once they are completed. */
const LISTED = 1_000;
/** The requests of one user conflict far less often. */
const MAX_CONFLICTS = 1_000;

const FACTS = ["requested", "started", "failed"] as const;
const AT_ONCE = 32;
/** Maximum number of requests that are added to lists together. */
const ADDED_AT_ONCE = 256;

/** The day is in the id, which is a UUIDv7: operators find the key of an analysis by it. */
const keyOf = (userToken: string, analysis: string, fact: (typeof FACTS)[number] | "*"): string =>
  `r.${userToken}.${dayOfId(analysis)}.${analysis}.${fact}`;

interface Addition {
  readonly token: string;
  readonly analysis: string;
}

/** Returns undefined if all are listed. */
function withIds(listed: readonly string[], ids: ReadonlySet<string>): readonly string[] | undefined {
  const all = new Set([...listed, ...ids]);
  return all.size === listed.length ? undefined : [...all].sort().reverse().slice(0, LISTED);
}

/** STREAM.INFO with `subjects_filter` makes nats-server 2.9 look through all facts of everybody. */
function createLists(bucket: Bucket) {
  const read = async (token: string) => {
    const entry = await bucket.get(listKey(token));
    return { ids: (entry?.value ?? []) as readonly string[], revision: entry?.revision ?? 0 };
  };
  /** @param change returns undefined if the list stays as it is */
  const update = async (
    token: string,
    change: (ids: readonly string[]) => readonly string[] | undefined,
  ): Promise<void> => {
    for (let attempt = 0; attempt < MAX_CONFLICTS; attempt++) {
      const { ids, revision } = await read(token);
      const changed = change(ids);
      // Each conflict is another request that was added.
      if (changed === undefined || (await bucket.replace(listKey(token), changed, revision))) return;
    }
    throw new AppError("unavailable", "the list of a user changes too often");
  };
  // Requests of one user that come together would conflict with each other.
  const addAll = createBatch<Addition, PromiseSettledResult<void>>(ADDED_AT_ONCE, async (additions) => {
    const byToken = grouped(additions, ({ token }) => token);
    const added = new Map(
      [...byToken].map(([token, ofUser]) => {
        const ids = new Set(ofUser.map(({ analysis }) => analysis));
        return [token, update(token, (listed) => withIds(listed, ids))];
      }),
    );
    return Promise.allSettled(additions.map(async ({ token }) => added.get(token)));
  });
  return {
    read,
    async add(token: string, analysis: string): Promise<void> {
      const outcome = await addAll({ token, analysis });
      if (outcome.status === "rejected") throw outcome.reason;
    },
    remove: (token: string, analyses: ReadonlySet<string>): Promise<void> =>
      update(token, (ids) => {
        const remaining = ids.filter((id) => !analyses.has(id));
        return remaining.length < ids.length ? remaining : undefined;
      }),
  };
}

function createFactRemovals(bucket: Bucket, lists: Pick<ReturnType<typeof createLists>, "remove">) {
  const removeFromLists = async (analyses: readonly AnalysisKey[]): Promise<void> => {
    const byUser = [...grouped(analyses, ({ user_id }) => user_id)];
    await mapLimited(byUser, AT_ONCE, ([user, ofUser]) =>
      lists.remove(encodeId(user), new Set(ofUser.map(({ analysis_id }) => analysis_id))),
    );
  };
  return {
    async about(user: string, most: number): Promise<readonly AnalysisKey[]> {
      const namedAs = naming(user);
      const requests = new Map<string, AnalysisKey>();
      for await (const { key, body } of bucket.entries("r.*.*.*.*")) {
        if (namedAs(body) !== "account") continue;
        const { user_id, analysis_id } = parseJson(body) as AnalysisKey;
        requests.set(key.slice(0, key.lastIndexOf(".")), { user_id, analysis_id });
        if (requests.size === most) break;
      }
      return [...requests.values()];
    },
    /** Removes the facts of some analyses. The lists come first: until the facts are removed, they lead to these. */
    async remove(analyses: readonly AnalysisKey[]): Promise<void> {
      await removeFromLists(analyses);
      const keys = analyses.flatMap(({ user_id, analysis_id }) =>
        FACTS.map((fact) => keyOf(encodeId(user_id), analysis_id, fact)),
      );
      // A server looks up a whole key, and compares a filter with all keys.
      await mapLimited(keys, AT_ONCE, bucket.purge);
    },
    removeFromLists,
    /** Removes all keys of a user, also those of requests that may be repeated. */
    removeAllOf: (user: string) => bucket.purge(`*.${encodeId(user)}.>`),
  };
}

/** Facts stay here until there is a row. Everything rejects with AppError `unavailable` while NATS is away. */
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
    return { key, stored: (await bucket.get(key))?.value as FailedFact | undefined };
  };
  const lists = createLists(bucket);
  return {
    /** Changes nothing if it is recorded. */
    async record(fact: RequestFact): Promise<void> {
      const token = encodeId(fact.user_id);
      await Promise.all([
        bucket.create(keyOf(token, fact.analysis_id, "requested"), fact),
        lists.add(token, fact.analysis_id),
      ]);
    },
    /** The first start counts. */
    async start(request: RequestFact, time: number): Promise<void> {
      const started: Started = { ...request, started_at: new Date(time).toISOString() };
      const token = encodeId(request.user_id);
      // A process of an earlier version, which took the request, keeps no lists.
      await lists.add(token, request.analysis_id);
      await bucket.create(keyOf(token, request.analysis_id, "started"), started);
    },
    /** Returns the failure that stands: after a crash the next attempt repeats it. */
    async fail(request: AnalysisRequest, failure: FailedFact): Promise<FailedFact> {
      const { key, stored } = await failureOf(request);
      if (stored !== undefined && stored.redrives === failure.redrives) return stored;
      await bucket.put(key, failure);
      return failure;
    },
    /** Marks the failure of an analysis that is completed now: operators ask no database. */
    async overcome(request: AnalysisRequest): Promise<void> {
      const { key, stored } = await failureOf(request);
      if (stored !== undefined && !stored.overcome) await bucket.put(key, { ...stored, overcome: true });
    },
    ...createFactRemovals(bucket, lists),
    find: (user: string, analysis: string) => find(encodeId(user), analysis),
    /** The newest are first; there are at most LISTED. */
    listed: async (user: string) => (await lists.read(encodeId(user))).ids,
    async userTokensOf(analysis: string): Promise<string[]> {
      const keys = (await bucket.keys(keyOf("*", analysis, "*"))) ?? [];
      return [...new Set(keys.map((key) => key.split(".")[1] as string))];
    },
  };
}
