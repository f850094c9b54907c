import { AppError } from "../../kernel/errors.js";
import type { Requests } from "../requests.nats.js";
import { type CompletedAnalysis, type Facts, mayBeCompleted, viewOf } from "../saga.js";
import type { AnalysisStore } from "../store.sql.js";
import { badRequest, Problem } from "./problem.js";

interface PageRequest {
  readonly limit: number;
  readonly cursor?: string | undefined;
}

/** A user's rewards, the newest first; `next` is the cursor of the next page. */
export interface Rewards {
  readonly page: (
    user: string,
    page: { readonly limit: number; readonly before?: string | undefined },
  ) => Promise<{
    readonly total: number;
    readonly transactions: readonly object[];
    readonly next?: string | undefined;
  }>;
}

interface ReadDeps {
  readonly requests: Pick<Requests, "find" | "list">;
  /** Undefined where no database is configured. */
  readonly store: Pick<AnalysisStore, "find" | "findAmong"> | undefined;
  readonly rewards: Rewards | undefined;
}

/** All reject with Problem, and with AppError `unavailable` where the truth cannot be known. */
export type Reads = ReturnType<typeof createReads>;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

export function createReads({ requests, store, rewards }: ReadDeps) {
  return {
    analysis: async (user: string, id: string) => {
      if (!UUID.test(id)) throw unknown();
      const found = await requests.find(user, id);
      if (found && !mayBeCompleted(found)) return viewOf(found, undefined);
      const row = await known(store).find(user, id);
      const facts = found ?? (row && { request: row });
      if (!facts) throw unknown();
      return viewOf(facts, row);
    },
    analyses: async (user: string, { limit, cursor }: PageRequest) => {
      if (cursor !== undefined && !UUID.test(cursor)) throw badCursor();
      const found = await requests.list(user, { limit: limit + 1, before: cursor });
      const page = found.slice(0, limit);
      const begun = page.filter(mayBeCompleted).map(idOf);
      const rows = begun.length > 0 ? await known(store).findAmong(user, begun) : new Map<string, CompletedAnalysis>();
      const last = found.length > limit ? page.at(-1) : undefined;
      return {
        analyses: page.map((facts) => viewOf(facts, rows.get(idOf(facts)))),
        next_cursor: last ? idOf(last) : null,
      };
    },
    rewards: async (user: string, { limit, cursor }: PageRequest) => {
      const { total, transactions, next = null } = await known(rewards).page(user, { limit, before: cursor });
      return { user_id: user, total, transactions, next_cursor: next };
    },
  };
}

const idOf = ({ request }: Facts): string => request.analysis_id;

const unknown = (): Problem => new Problem(404, "no such analysis");

const badCursor = (): Problem => badRequest([{ field: "cursor", detail: "is no cursor of this list" }]);

function known<T>(source: T | undefined): T {
  if (source === undefined) throw new AppError("unavailable", "DATABASE_URL is not set in this process");
  return source;
}
