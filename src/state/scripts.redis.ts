import { type Script, script as scriptOf } from "../platform/redis/scripts.js";
import { PULLS_COMPLETE } from "./big-authors/pulled.js";
import type { KeyPattern } from "./declared.js";
import { LEFT_OUT_COUNT, MAX_LEFT_OUT } from "./entries/follows.js";
import { ACTOR_TOKEN, FLOOR_MEMBER, HIDDEN_STATE } from "./keys.js";

/** Returns the part of a declared pattern before its first token, or up to the brace that a timeline follows. */
const before = (pattern: KeyPattern): string => pattern.replace(/(?<=\{).*|<.*/s, "");

/** Members that are no ids, and keys or their beginnings: locals of each script. */
const NAMES = {
  FLOOR: FLOOR_MEMBER,
  COMPLETE: PULLS_COMPLETE,
  STATE: HIDDEN_STATE,
  HOME: before("timeline:home:<user>"),
  LIST: before("timeline:list:<list>"),
  AUTHOR: before("timeline:author:<user>"),
  TOMBSTONES: before("timeline:tombstones"),
  ERASED: before("timeline:x:erased"),
  HIDERS: before("timeline:x:hiders:<user>"),
  HIDDEN: before("timeline:x:hidden:{timeline:home:<user>}"),
  FOLLOWS: before("timeline:x:follows:{timeline:home:<user>}"),
  LEFT: LEFT_OUT_COUNT,
  MOST_LEFT: String(MAX_LEFT_OUT),
  RENEWAL: before("timeline:x:renewal:{timeline:home:<user>}"),
  BYLINES: before("timeline:x:bylines:{<timeline>}"),
  STANDING_BYLINES: before("timeline:x:standing-bylines:{timeline:home:<user>}"),
  ACTOR: ACTOR_TOKEN,
  REMOTE: before("timeline:x:remote:{timeline:global}"),
};

const values = Object.values(NAMES).map((text) => `'${text}'`);
const LOCALS = `local ${Object.keys(NAMES).join()} = ${values.join()} `;

/** Returns a script of the state. Its names stand on its first line: errors of Redis name the lines of the file. */
export function script(...args: Parameters<typeof scriptOf>): Script {
  const read = scriptOf(...args);
  return { ...read, lua: LOCALS + read.lua };
}
