import { GLOBAL_KEY, HOME_PREFIX, LOCAL_KEY } from "./keys.js";

// Policy passes on the names of timelines without looking into them.
export {
  authorKey as authorTimelineOf,
  authorOfKey as authorOf,
  FLOOR_MEMBER as FLOOR,
  homeKey as homeOf,
  kindOf,
  listKey as listTimelineOf,
  userOfHomeKey as userOfHome,
} from "./keys.js";

export const LOCAL = LOCAL_KEY;
export const GLOBAL = GLOBAL_KEY;

/** Pattern of the names of homes, as SCAN takes it. */
export const HOMES = `${HOME_PREFIX}*`;
