export const LIMIT_KINDS = ["drops", "same-body", "follows", "members", "reactions"] as const;

/** A user may do each of these so often within a time. */
export type LimitKind = (typeof LIMIT_KINDS)[number];
