export const LIMIT_KINDS = ["drops", "same-body", "follows", "reactions"] as const;

/** What a user may do so often within a time. */
export type LimitKind = (typeof LIMIT_KINDS)[number];
