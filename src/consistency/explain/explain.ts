import type { TimelineEvent } from "../../contracts/events.js";
import { printable } from "../../kernel/errors.js";

/** Facts about a drop and a home. Undefined: unknown, except for `score` and `floor`. */
export interface Facts {
  /** User, and author named in the question, of whom the upstreams know nothing. */
  readonly unknownUsers: readonly string[];
  readonly author: string | undefined;
  /** Creation time, in ms since the epoch. */
  readonly createdAt: number | undefined;
  /** Events of the drop in the log, the oldest first; times are those of the admission. */
  readonly admitted: readonly { readonly event: TimelineEvent["name"]; readonly seq: number; readonly time: number }[];
  /** All events admitted before the question are applied, except those that wait for other users and drops. */
  readonly isApplied: boolean;
  /** PostService lists the drop among those of its author. */
  readonly isListed: boolean | undefined;
  readonly isTombstoned: boolean;
  /** The drop was created before the drops that are kept. */
  readonly isPastRetention: boolean;
  /** The user or the author is erased. */
  readonly isErased: boolean;
  /** False for a direct drop if the user is neither its author nor a recipient. */
  readonly isForUser: boolean | undefined;
  /** True for the user's own drops, too. */
  readonly follows: boolean | undefined;
  /** A block or a mute hides the author, or the author of the original or of the parent, from the user. */
  readonly isHidden: boolean | undefined;
  /** The drop is a reply to somebody whom the user does not follow, and homes leave those out. */
  readonly isReplyToOthers: boolean | undefined;
  /** Drops of the author are merged into the home when it is read. */
  readonly isPulled: boolean;
  /** The drop is not in the home itself, but in the merged timeline of the author. */
  readonly isMerged: boolean;
  /** Time of the drop's entry in the home or the merged timeline, ms; undefined: there is no entry. */
  readonly score: number | undefined;
  /** The home is complete down to this time, ms; negative or undefined: it is not stored whole. */
  readonly floor: number | undefined;
}

/**
 * - `shown`, `left-out`: the home has the drop, or lacks it, as it must.
 * - `not-stored`: the home is not stored whole; the next read rebuilds it.
 * - `older`: the home ends above the drop; a read past its end asks PostService.
 * - `under-way`: events of the log still have to be applied.
 * - `missing`, `unexpected`: the home is wrong, and an audit with a fix rebuilds it.
 * - `unknown`: a fact that decides is not known.
 */
export type Verdict =
  | "shown"
  | "left-out"
  | "not-stored"
  | "older"
  | "under-way"
  | "missing"
  | "unexpected"
  | "unknown";

export interface Explanation {
  readonly verdict: Verdict;
  readonly why: string;
}

/** Returns true if the home must be rebuilt. */
export const isWrong = ({ verdict }: Explanation): boolean => verdict === "missing" || verdict === "unexpected";

/** Returns the verdict, and the first fact that decides it. */
export function explain(facts: Facts): Explanation {
  const { score, floor, createdAt, isApplied, unknownUsers } = facts;
  if (unknownUsers.length > 0) return misspelt(unknownUsers);
  const reason = reasonToLeaveOut(facts);
  if (score !== undefined) {
    if (reason === undefined)
      return isKnown(facts) ? { verdict: "shown", why: "the home has it, as it must" } : unknown;
    // Pages leave these drops out, even if they are stored.
    if (facts.isTombstoned || facts.isPastRetention || (facts.isMerged && (facts.isHidden || facts.isReplyToOthers)))
      return { verdict: "left-out", why: `${reason}; pages hide it` };
    return isApplied ? { verdict: "unexpected", why: `${reason}, and the home has it` } : underWay;
  }
  if (reason !== undefined) return { verdict: "left-out", why: reason };
  if (!isKnown(facts)) return unknown;
  if (floor === undefined || floor < 0)
    return { verdict: "not-stored", why: "the home is not stored whole; the next read rebuilds it" };
  if (createdAt !== undefined && createdAt <= floor)
    return { verdict: "older", why: "the home ends above it; a read past its end asks PostService" };
  return isApplied ? { verdict: "missing", why: "the home must have it, and lacks it" } : underWay;
}

const underWay: Explanation = { verdict: "under-way", why: "events of the log are not applied yet" };

const unknown: Explanation = {
  verdict: "unknown",
  why: "its author or its time is not known: name the author, or correct the id of the drop",
};

const misspelt = (users: readonly string[]): Explanation => ({
  verdict: "unknown",
  why: `the upstreams know no user ${users.map((user) => printable(JSON.stringify(user))).join(" and no user ")}: correct the id`,
});

const isKnown = ({ isListed, isForUser, follows, isHidden }: Facts): boolean =>
  [isListed, isForUser, follows, isHidden].every((fact) => fact !== undefined);

function reasonToLeaveOut(facts: Facts): string | undefined {
  if (facts.isTombstoned) return "it is deleted";
  if (facts.isPastRetention) return "it is older than the drops that are kept";
  if (facts.isErased) return "the user or the author is erased";
  if (facts.isListed === false) return "PostService does not list it for its author";
  if (facts.isForUser === false) return "it is a direct drop for others";
  if (facts.follows === false) return "the user does not follow the author";
  if (facts.isHidden) return "a block or a mute hides it from the user";
  return facts.isReplyToOthers ? "it is a reply to somebody whom the user does not follow" : undefined;
}

/** Returns JSON, whose fields are in snake_case as in all JSON. */
export const explainedAsJson = (explained: Explanation & Facts): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(explained).map(([name, value]) => [name.replaceAll(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), value]),
  );
