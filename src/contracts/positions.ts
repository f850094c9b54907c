import { z } from "zod";
import { storedIdFault } from "../kernel/fields.js";
import { idFault, RESERVED_DROP_ID } from "../kernel/ids.js";
import { MAX_CURSOR_CHARS, TIMELINES } from "./timeline-pages.js";

export const POSITIONS_PATH = "/api/v1/positions";

/** Positions in lists of a user; of more the one that was set longest ago goes. A user has at most as many lists. */
export const MOST_LISTS = 50;

const LIST = "list:";
/** Returns the name under which a list has a position. */
export const listPositionOf = (list: string): string => LIST + list;
export const isListPosition = (timeline: string): boolean => timeline.startsWith(LIST);
/** Returns the list whose position has this name; undefined for another timeline. */
export const listOfPosition = (timeline: string): string | undefined =>
  isListPosition(timeline) ? timeline.slice(LIST.length) : undefined;

/** Returns undefined for the name of a timeline that has a position. */
export function positionTimelineFault(timeline: string): string | undefined {
  if ((TIMELINES as readonly string[]).includes(timeline)) return undefined;
  const list = listOfPosition(timeline);
  if (list !== undefined && storedIdFault(list) === undefined) return undefined;
  return "must be home, local, global, or list: and the id of a list";
}

export const positionDropFault = (drop: string): string | undefined =>
  drop === RESERVED_DROP_ID ? "is no drop id" : idFault(drop);

const NEW = {
  timeline: z.string().max(MAX_CURSOR_CHARS).meta({ description: "home, local, global, or list:<id>" }),
  drop_id: z.string().max(MAX_CURSOR_CHARS).meta({ description: "The newest drop that the user has read there" }),
  version: z.int().min(0).meta({ description: "A newer position has a higher one" }),
};

/** The body of a new position over HTTP. */
export const NEW_POSITION = z.object(NEW).meta({ description: "A new position" });

const POSITION = z.object({ ...NEW, updated_at: z.int().meta({ description: "ms since the epoch" }) });

export const SET_POSITION = z.object({ position: POSITION }).meta({ description: "The position that stands" });

export const POSITIONS = z
  .object({ positions: z.array(POSITION) })
  .meta({ description: "Up to where the caller has read each timeline" });
