import type { Byline } from "../../contracts/timelines.js";
import { Hidden, type HiddenUsers } from "../hidden/hidden.js";
import type { Standings } from "./standings.redis.js";

/** No user has this id: the viewer of a page for everybody. */
export const NOBODY = "";

/** Hidden users of {@link NOBODY}. */
export const NOTHING_HIDDEN: HiddenUsers = new Hidden(NOBODY, new Map());

type Judges = Pick<Standings, "of" | "size">;

/** Returns true if one of those whom a byline names is suspended. */
export const isOfSuspended = (standings: Judges, { author, original, parent }: Byline): boolean =>
  standings.size > 0 &&
  [author, original, parent].some((user) => user !== undefined && standings.of(user) === "suspended");

/** Adds the suspended to the hidden users of a viewer. */
const withSuspended = (hidden: HiddenUsers, standings: Judges): HiddenUsers =>
  judgedBy(hidden, standings, (by) => isOfSuspended(standings, by));

/** Returns true if a standing keeps the drop out of local and global. The limited see their own drops. */
export const isUnlisted = (standings: Judges, by: Byline, viewer: string): boolean =>
  isOfSuspended(standings, by) || (by.author !== viewer && standings.of(by.author) === "limited");

/** Adds those whom their standing keeps out of local and global to the hidden users of a viewer. */
export const withUnlisted = (hidden: HiddenUsers, viewer: string, standings: Judges): HiddenUsers =>
  judgedBy(hidden, standings, (by) => isUnlisted(standings, by, viewer));

/** Returns what pages ask the standings. */
export const createViews = (standings: Judges & Pick<Standings, "isLost">) => ({
  /** Returns true if local and global may have drops of users whose standing keeps them out of there. */
  hasUnlisted: (): boolean => standings.size > 0,
  /** Returns true while homes may show drops of the suspended, since Redis has lost which these are. */
  mayShowSuspended: (): boolean => standings.isLost,
  withUnlisted: (hidden: HiddenUsers, viewer: string): HiddenUsers => withUnlisted(hidden, viewer, standings),
  withSuspended: (hidden: HiddenUsers): HiddenUsers => withSuspended(hidden, standings),
});

function judgedBy(hidden: HiddenUsers, { size }: Judges, isHidden: (by: Byline) => boolean): HiddenUsers {
  if (size === 0) return hidden;
  return {
    size: hidden.size + size,
    endsSoon: hidden.endsSoon ?? false,
    among: async (bylines) => {
      const asked = await hidden.among(bylines);
      return { hidingOf: (target) => asked.hidingOf(target), hides: (by) => isHidden(by) || asked.hides(by) };
    },
  };
}
