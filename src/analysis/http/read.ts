import { createBoundedQueue } from "../../kernel/concurrency.js";
import { AppError, codeOf } from "../../kernel/errors.js";
import type { KeysetPage } from "../../kernel/paging.js";
import { badRequest, Problem } from "../../kernel/problem.js";
import type { Requests } from "../requests.nats.js";
import { type CompletedAnalysis, type Facts, mayBeCompleted, statusOf, viewOf } from "../saga.js";
import type { AnalysisStore } from "../store.sql.js";

interface CursorPage {
  readonly limit: number;
  readonly cursor?: string | undefined;
}

export interface Rewards {
  readonly page: (
    user: string,
    page: KeysetPage,
  ) => Promise<{
    readonly total: number;
    readonly transactions: readonly object[];
    readonly next?: string | undefined;
  }>;
}

interface ReadDeps {
  readonly requests: Pick<Requests, "find" | "listed">;
  /** TIMELINE holds the message of this sequence. */
  readonly isQueued: (seq: number) => Promise<boolean>;
  readonly store: Pick<AnalysisStore, "find" | "findAmong" | "newest"> | undefined;
  readonly rewards: Rewards | undefined;
}

/** All reads reject with Problem, and with AppError `unavailable` if the truth cannot be known. */
export type Reads = ReturnType<typeof createReads>;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** A list makes hundreds of calls to NATS, over the connection that drops and event streams use, too. */
const LISTS_AT_ONCE = 4;
/** One user has as many waiting as the limit of reads lets through at once; others have as many. */
const LISTS_WAITING = 200;

interface Seen {
  readonly facts: Facts;
  readonly row?: CompletedAnalysis | undefined;
}

export function createReads({ requests, isQueued, store, rewards }: ReadDeps) {
  const refusal = () => new AppError("unavailable", "too many lists of analyses wait in this process");
  const inTurn = createBoundedQueue({ atOnce: LISTS_AT_ONCE, waiting: LISTS_WAITING, refusal });
  const look = async (user: string, id: string): Promise<Seen> => {
    const answer = await requests.find(user, id).catch(unlessUnavailable);
    if (answer && !(answer instanceof AppError) && !mayBeCompleted(answer)) return { facts: answer };
    const row = await configured(store).find(user, id);
    if (answer instanceof AppError) {
      // A row says all; without one only NATS knows.
      if (row) return { facts: { request: row }, row };
      throw answer;
    }
    const facts = answer ?? (row && { request: row });
    if (!facts) throw noSuchAnalysis();
    return { facts, row };
  };
  const settled = async ({ facts, row }: Seen): Promise<Seen> => {
    const { user_id, analysis_id, request_seq } = facts.request;
    const isOpen = ["queued", "processing"].includes(statusOf(facts, row)) && request_seq !== undefined;
    if (!isOpen || (await isQueued(request_seq))) return { facts, row };
    // A worker writes how it ended before its message leaves the queue.
    const last = await look(user_id, analysis_id);
    return { ...last, facts: { ...last.facts, abandoned: true } };
  };
  const view = async (seen: Seen) => {
    const { facts, row } = await settled(seen);
    return viewOf(facts, row);
  };
  /** The user's list has the newest, and rows those that have left it or are older than the list. */
  const idsBelow = async (user: string, { limit, before }: { limit: number; before: string | undefined }) => {
    const listed = (await requests.listed(user)).filter((id) => before === undefined || id < before).slice(0, limit);
    if (listed.length === limit || !store) return listed;
    const older = await store.newest(user, { limit, before }).catch(unlessUnavailable);
    if (older instanceof AppError) {
      if (listed.length === 0) throw older;
      return listed;
    }
    return [...new Set([...listed, ...older])].sort().reverse().slice(0, limit);
  };
  const listOf = async (user: string, { limit, cursor }: CursorPage) => {
    const ids = await idsBelow(user, { limit: limit + 1, before: cursor });
    const page = ids.slice(0, limit);
    const facts = await Promise.all(page.map((id) => requests.find(user, id)));
    // An analysis without facts has a row: rows are kept as long, and begin earlier.
    const begun = page.filter((_, index) => !facts[index] || mayBeCompleted(facts[index]));
    const rows =
      begun.length > 0 ? await configured(store).findAmong(user, begun) : new Map<string, CompletedAnalysis>();
    const seen = page.flatMap((id, index): Seen[] => {
      const row = rows.get(id);
      const stored = facts[index] ?? (row && { request: row });
      return stored ? [{ facts: stored, row }] : [];
    });
    return {
      analyses: await Promise.all(seen.map(view)),
      next_cursor: ids.length > limit ? (page.at(-1) ?? null) : null,
    };
  };
  return {
    analysis: async (user: string, id: string) => {
      if (!UUID.test(id)) throw noSuchAnalysis();
      return view(await look(user, id));
    },
    analyses: async (user: string, { limit, cursor }: CursorPage) => {
      if (cursor !== undefined && !UUID.test(cursor)) throw badCursor();
      return inTurn(() => listOf(user, { limit, cursor }), user);
    },
    rewards: async (user: string, { limit, cursor }: CursorPage) => {
      const { total, transactions, next = null } = await configured(rewards).page(user, { limit, before: cursor });
      return { user_id: user, total, transactions, next_cursor: next };
    },
  };
}

function unlessUnavailable(error: unknown): AppError {
  if (error instanceof AppError && codeOf(error) === "unavailable") return error;
  throw error;
}

const noSuchAnalysis = (): Problem => new Problem(404, "no such analysis");

const badCursor = (): Problem => badRequest([{ field: "cursor", detail: "is no cursor of this list" }]);

function configured<T>(source: T | undefined): T {
  if (source === undefined) throw new AppError("unavailable", "DATABASE_URL is not set in this process");
  return source;
}
