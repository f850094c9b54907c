import type { ErasureStep, StandingEntry } from "../gen/avion/users.js";
import { printable } from "../kernel/errors.js";
import type { LimitKind } from "./limits.js";
import { type KnownStanding, STANDING_NAMES } from "./standings.js";

/** One kind of record as operators see it: `ls` prints lines, and the console draws columns. */
export interface Table<Row> {
  /** The console shows it above the columns. */
  readonly title: string;
  /** Text in place of no rows. */
  readonly none: string;
  readonly line: (row: Row) => string;
  /** Cells by their heading. */
  readonly columns: Readonly<Record<string, (row: Row) => string | null>>;
}

/** Returns the JSON that the console draws. */
export const drawn = <Row>({ title, none, columns }: Table<Row>, rows: readonly Row[]) => ({
  title,
  none,
  headings: Object.keys(columns),
  rows: rows.map((row) => Object.values(columns).map((cell) => cell(row))),
});

export interface AuthorShown {
  readonly author_id: string;
  readonly state: string;
  readonly by: "hand" | "count" | "pressure";
  readonly since: string | null;
}

const REASONS = { hand: "an operator", count: "followers", pressure: "writes to homes" } as const;

export const AUTHORS: Table<AuthorShown> = {
  title: "Authors who are not simply pushed",
  none: "every author is pushed",
  line: ({ author_id, state, by, since }) =>
    printable(`${author_id}  ${state} by ${REASONS[by]}${since === null ? "" : ` since ${since}`}`),
  columns: {
    Author: ({ author_id }) => author_id,
    State: ({ state }) => state,
    By: ({ by }) => by,
    Since: ({ since }) => since,
  },
};

export interface ErasureShown {
  readonly user_id: string;
  readonly status: string;
  /** Null if the users service does not know it. */
  readonly requested_at: string | null;
  readonly completed_at: string | null;
  readonly steps: readonly ErasureStep[];
  /** Set if the erasure was lifted. */
  readonly lifted_at?: string;
  readonly reason?: string;
}

const notDone = ({ steps }: ErasureShown) => steps.filter(({ done }) => !done);

export const ERASURES: Table<ErasureShown> = {
  title: "Erasures, the newest first",
  none: "nobody is erased",
  line: ({ lifted_at, reason, ...erasure }) => {
    const { user_id, status, requested_at, completed_at } = erasure;
    if (lifted_at !== undefined) return printable(`${status} at ${lifted_at}  ${user_id}  ${reason}`);
    const since = completed_at ?? requested_at;
    const names = notDone(erasure).map(({ name }) => name);
    const waiting = names.length === 0 ? "" : `  not done: ${names.join(", ")}`;
    return printable(`${status}${since === null ? "" : ` since ${since}`}  ${user_id}${waiting}`);
  },
  columns: {
    User: ({ user_id }) => user_id,
    Status: ({ status }) => status,
    Requested: ({ requested_at }) => requested_at,
    Completed: ({ completed_at }) => completed_at,
    "Not done": (erasure) =>
      notDone(erasure)
        .map(({ name, left: remaining }) => (remaining > 0 ? `${name} (${remaining} left)` : name))
        .join(", "),
  },
};

/** Null stands for what a malformed request does not say. */
export interface UnfinishedAnalysis {
  readonly analysis_id: string | null;
  readonly user_id: string | null;
  readonly did: string | null;
  readonly type: string | null;
  readonly tier: string | null;
  readonly status: "queued" | "processing" | "failed";
  /** The analysis has had this status since this time, RFC 3339. */
  readonly since: string;
  readonly stream: string;
  readonly stream_seq: number;
  readonly reason: string | null;
  readonly error: string | null;
}

export const ANALYSES: Table<UnfinishedAnalysis> = {
  title: "Analyses that are not done",
  none: "no analysis waits, and there is no dead letter of one",
  line: ({ analysis_id, user_id, did, type, tier, status, since, stream, stream_seq, error }) => {
    const what = analysis_id === null ? "not understood" : `${analysis_id}  ${type} of ${did} for ${user_id} (${tier})`;
    return printable(`${status} since ${since}  ${stream} ${stream_seq}  ${what}${error === null ? "" : `: ${error}`}`);
  },
  columns: {
    Analysis: ({ analysis_id }) => analysis_id,
    Status: ({ status }) => status,
    Since: ({ since }) => since,
    Of: ({ did, type }) => `${did ?? "–"} (${type ?? "–"})`,
    Error: ({ error }) => error,
  },
};

export interface StandingShown {
  readonly user_id?: string;
  readonly host?: string;
  readonly standing: string;
  /** Null: for good. */
  readonly until: string | null;
  readonly reason: string;
  readonly by: string;
  readonly version: number;
  /** Null if there is none. */
  readonly changed_at: string | null;
}

const dateOf = (ms: number): string | null => (ms === 0 ? null : new Date(ms).toISOString());

export const standingAsJson = (entry: StandingEntry): StandingShown => ({
  ...(entry.host === "" ? { user_id: entry.user_id } : { host: entry.host }),
  standing: STANDING_NAMES[entry.standing as KnownStanding] ?? "unknown",
  until: dateOf(entry.until),
  reason: entry.reason,
  by: entry.by,
  version: entry.version,
  changed_at: dateOf(entry.changed_at),
});

export const STANDINGS_SHOWN: Table<StandingShown> = {
  title: "Limited and suspended users and hosts",
  none: "nobody is limited or suspended",
  line: ({ user_id, host, standing, until, reason, by, changed_at }) => {
    const times = `${changed_at === null ? "" : ` since ${changed_at}`}${until === null ? "" : ` until ${until}`}`;
    const why = `${reason === "" ? "" : `: ${reason}`}${by === "" ? "" : ` (${by})`}`;
    return printable(`${standing}${times}  ${user_id ?? `host ${host}`}${why}`);
  },
  columns: {
    Subject: ({ user_id, host }) => user_id ?? `host ${host}`,
    Standing: ({ standing }) => standing,
    Since: ({ changed_at }) => changed_at,
    Until: ({ until }) => until,
    Reason: ({ reason }) => reason,
    By: ({ by }) => by,
  },
};

/** A user who has reached a limit. */
export interface AtLimit {
  readonly user_id: string;
  readonly limit: LimitKind;
  readonly used: number;
  readonly most: number;
  readonly within: string;
  /** The user may act again from this time on, RFC 3339. */
  readonly free_at: string;
}

/** The console does not show it: each look scans all keys of Redis. */
export const LIMITS: Pick<Table<AtLimit>, "none" | "line"> = {
  none: "nobody is at a limit",
  line: ({ user_id, limit, used, most, within, free_at }) =>
    printable(`${user_id}  ${limit}  ${used} of ${most} within ${within}, the next one at ${free_at}`),
};
