import { Standing as Numbered } from "../gen/avion/users.js";
import { AppError } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import { parseUrl } from "../kernel/urls.js";

/** The order is that of strictness. */
export const STANDINGS = ["active", "limited", "suspended"] as const;
export type Standing = (typeof STANDINGS)[number];

/** Names in events, by the numbers in users.proto. */
export const STANDING_NAMES = {
  [Numbered.ACTIVE]: "active",
  [Numbered.LIMITED]: "limited",
  [Numbered.SUSPENDED]: "suspended",
} as const satisfies Partial<Record<Numbered, Standing>>;

export type KnownStanding = keyof typeof STANDING_NAMES;

/** Returns the number of a standing in users.proto. */
export const standingNumber = (name: Standing): KnownStanding =>
  Number(Object.entries(STANDING_NAMES).find(([, known]) => known === name)?.[0]);

/** Exactly one of the two is set. A host stands for its actors and those of its subdomains. */
export interface StandingSubject {
  readonly user_id?: string | undefined;
  readonly host?: string | undefined;
}

/** Returns the name of a subject in keys. No token of a user begins with "@". */
export const subjectToken = ({ user_id = "", host }: StandingSubject): string =>
  host === undefined ? encodeId(user_id) : `@${host}`;

/** Returns a host in lower case and in ASCII; undefined if the text is none. */
export function hostOf(text: string): string | undefined {
  const url = /^[^\s/?#@\\]{1,253}$/.test(text) ? parseUrl(`https://${text}/`) : undefined;
  return url?.host === "" ? undefined : url?.host;
}

/** Returns what an operator names: a host if the text has a dot and is one, unless `isUser`, else a user. */
export const subjectOf = (text: string, isUser = false): { readonly user_id: string; readonly host: string } =>
  !isUser && !text.includes("://") && text.includes(".") && hostOf(text) !== undefined
    ? { user_id: "", host: text }
    : { user_id: text, host: "" };

/** Returns the hosts that stand for an actor, the actor's own first; none for a user of this server. */
export function hostsOf(user: string): readonly string[] {
  // Ids of actors are stored in their normal form; parsing each one would cost ten times as much.
  const [, host] = /^https?:\/\/([^/?#@]+)/.exec(user) ?? [];
  if (host === undefined) return [];
  const labels = host.replace(/:\d+$/, "").split(".");
  return [...new Set([host, ...labels.map((_, from) => labels.slice(from).join("."))])];
}

/** Returns the strictest of some standings. */
export const strictest = (standings: readonly Standing[]): Standing =>
  STANDINGS[Math.max(0, ...standings.map((standing) => STANDINGS.indexOf(standing)))] as Standing;

type Method = (request: never, context: never) => unknown;

/** Fields of requests that name who writes. Beside `user_id` a `follower_id` is the other user. */
const WRITERS = ["user_id", "follower_id", "actor_uri"] as const;

interface WriteRequest extends Partial<Record<(typeof WRITERS)[number], string>> {
  readonly follows?: readonly { readonly follower_id: string }[];
}

const writersOf = ({ follows = [], ...request }: WriteRequest): (readonly [field: string, user: string])[] => [
  ...WRITERS.flatMap((field) => {
    const isOther = field === "follower_id" && request.user_id !== undefined;
    return request[field] && !isOther ? [[field, request[field]] as const] : [];
  }),
  ...follows.map(({ follower_id }, index) => [`follows.${index}.follower_id`, follower_id] as const),
];

/** Returns methods of which those named refuse, with AppError `conflict`, what a suspended user writes. */
export function refusingSuspended<Methods extends { readonly [name in keyof Methods]: Method }>(
  methods: Methods,
  writes: readonly (keyof Methods)[],
  standingOf: (user: string) => Standing,
): Methods {
  const wrap =
    (method: Method): Method =>
    (request: WriteRequest, context) => {
      for (const [field, user] of writersOf(request))
        if (standingOf(user) === "suspended") throw new AppError("conflict", `${field}: is suspended`);
      return method(request as never, context);
    };
  return { ...methods, ...Object.fromEntries(writes.map((name) => [name, wrap(methods[name])])) };
}
