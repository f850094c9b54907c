import { publicUrl } from "../kernel/urls.js";
import { type ConfigOf, integer, limit, onOff, type Variables } from "../kernel/variables.js";

export const POSTS_VARIABLES = {
  maxBodyCharacters: {
    name: "TIMELINE_DROP_MAX_CHARACTERS",
    schema: integer(1, 100_000),
    default: "5000",
    about: "Maximum length of the body of a drop, characters",
  },
  retentionDays: {
    name: "TIMELINE_DROPS_RETENTION_DAYS",
    schema: integer(0, 36_500),
    default: "0",
    about: "Drops older than this are removed, by whole months, days; 0: never",
  },
  maxImportAgeDays: {
    name: "TIMELINE_DROPS_IMPORT_MAX_AGE_DAYS",
    schema: integer(1, 7_300),
    default: "3650",
    about: "Maximum age of an imported drop, days",
  },
  maxWaitingEvents: {
    name: "TIMELINE_OUTBOX_MAX_WAITING",
    schema: integer(0, 100_000_000),
    default: "0",
    about: "Waiting events of drops above which CreateDrop and ShareDrop answer RESOURCE_EXHAUSTED; 0: never",
  },
  limitDrops: {
    name: "TIMELINE_LIMIT_DROPS",
    schema: limit,
    default: "300/3h",
    about: "New drops of a user at most, as number/time (s, m, h, d), or off; shares count, imports do not",
  },
  limitSameBody: {
    name: "TIMELINE_LIMIT_SAME_BODY",
    schema: limit,
    default: "5/10m",
    about: "New drops of a user with the same text for the same people at most, as number/time, or off",
  },
  limitReactions: {
    name: "TIMELINE_LIMIT_REACTIONS",
    schema: limit,
    default: "1000/1h",
    about: "Likes and shares of a user at most, as number/time, or off",
  },
  publicUrl: {
    name: "TIMELINE_PUBLIC_URL",
    schema: publicUrl,
    about:
      "The URL that the URIs of local users (/users/<id>) and drops (/drops/<id>) begin with; unset: they have none. Its path is before those that the roles gateway and analysis tell clients",
  },
  fetch: {
    name: "TIMELINE_FETCH",
    schema: onOff,
    default: "off",
    about:
      "on: `GetRemoteObject` with `fetch` asks other servers for missing or expired objects, over https and without a proxy",
  },
} as const satisfies Variables;

export type PostsConfig = ConfigOf<typeof POSTS_VARIABLES>;
