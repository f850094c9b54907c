import type { UsersSource } from "../contracts/outbox.js";
import { hostOf, hostsOf, type KnownStanding, STANDING_NAMES, subjectToken } from "../contracts/standings.js";
import * as wire from "../gen/avion/users.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { invalid } from "../kernel/errors.js";
import { readId, readText } from "../kernel/fields.js";
import type { Logger } from "../kernel/logger.js";
import { type PageLimits, type PageTokens, readTime } from "../kernel/paging.js";
import { sharedNow } from "../kernel/time.js";
import type { StandingPosition, StandingStore, StoredSubject, WantedStanding } from "./standings.sql.js";

export interface StandingsDeps {
  readonly standings: StandingStore;
  readonly wakeRelay: (source: UsersSource) => void;
  readonly bounded: BoundedQueue;
  readonly tokens: PageTokens;
  readonly log: Logger;
}

const PAGES: PageLimits = { default: 1_000, max: 1_000 };
const MAX_REASON = 500;
const MAX_BY = 100;

// Each method throws an AppError: `invalid` naming the field, `conflict` if the user is erased.

export const standings = ({ standings: store, wakeRelay, bounded, tokens, log }: StandingsDeps) => ({
  async setStanding(request: wire.SetStandingRequest): Promise<wire.SetStandingResponse> {
    const wanted = { ...readSubject(request), ...readWanted(request) };
    const { changed, version } = await store.set(wanted);
    if (changed) {
      const { user_id, host, standing, until, reason, by } = wanted;
      const subject = subjectToken(host === "" ? { user_id } : { host });
      log.info({ subject, standing: STANDING_NAMES[standing], until, reason, by, version }, "a standing is set");
      wakeRelay("users");
    }
    return { changed, version };
  },

  async getStanding(request: wire.GetStandingRequest): Promise<wire.GetStandingResponse> {
    const subject = readSubject(request);
    const hosts = hostsOf(subject.host === "" ? subject.user_id : `https://${subject.host}`);
    const entry = await bounded(() => store.of(subject.user_id, hosts));
    return { entry: entry ?? { ...subject, ...ACTIVE } };
  },

  async listStandings(request: wire.ListStandingsRequest): Promise<wire.ListStandingsResponse> {
    const page = tokens.open<[string, string]>(["standings"], request, PAGES);
    const [user_id, host] = page.after ?? ["", ""];
    const rows = await bounded(() => store.list({ user_id, host }, page.limit));
    const { items, next_page_token } = page.pageOf(rows, (row) => [row.user_id, row.host]);
    return { entries: items, next_page_token };
  },

  async listStandingChanges(request: wire.ListStandingChangesRequest): Promise<wire.ListStandingChangesResponse> {
    const since = readTime("since", request.since);
    const until = readTime("until", request.until) || Number.MAX_SAFE_INTEGER;
    const page = tokens.open<StandingPosition>(["standing-changes", request.since, request.until], request, PAGES);
    const rows = await bounded(() => store.changes(page.after ?? [since, "", ""], until, page.limit));
    const { items, next_page_token } = page.pageOf(rows, (row) => [row.changed_at, row.user_id, row.host]);
    return { entries: items, next_page_token };
  },
});

const ACTIVE = { standing: wire.Standing.ACTIVE, until: 0, version: 0, reason: "", by: "", changed_at: 0 };

function readSubject({ user_id, host }: StoredSubject): StoredSubject {
  if ((user_id === "") === (host === "")) throw invalid("user_id", "must be set, or host, and not both");
  if (host === "") return { user_id: readId("user_id", user_id), host: "" };
  const named = hostOf(host);
  if (named === undefined) throw invalid("host", "must be the name of a host");
  return { user_id: "", host: named };
}

function readWanted(request: wire.SetStandingRequest): Omit<WantedStanding, keyof StoredSubject> {
  const { standing } = request;
  if (!(standing in STANDING_NAMES)) throw invalid("standing", "must be active, limited or suspended");
  const until = standing === wire.Standing.ACTIVE ? 0 : readTime("until", request.until);
  if (until > 0 && until <= sharedNow()) throw invalid("until", "must be 0 or in the future");
  return {
    standing: standing as KnownStanding,
    until,
    reason: readText("reason", request.reason, MAX_REASON),
    by: readText("by", request.by, MAX_BY),
  };
}
