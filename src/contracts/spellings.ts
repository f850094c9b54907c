import { normalUri } from "../kernel/urls.js";

/** Resolves to those of some URIs that are stored as they are written: an earlier version kept each spelling. */
export type StoredAmong = (uris: readonly string[]) => Promise<Iterable<string>>;

/** Fields of requests that name users, drops or remote objects. */
const FIELDS: ReadonlySet<string> = new Set([
  ...["uri", "actor_uri", "object", "reply_to", "drop_id", "drop_ids", "max_id", "recipients", "mentions"],
  ...[
    "user_id",
    "user_ids",
    "viewer_id",
    "reader_id",
    "target_id",
    "target_ids",
    "follower_id",
    "following_id",
    "following_ids",
  ],
  ...["follows", "replaces", "member_ids", "member_id", "owner_ids"],
]);

/** Returns texts with URIs in the spelling in which they are stored: the normal form, unless another one is stored. */
export async function spelled(texts: readonly string[], storedAmong: StoredAmong): Promise<string[]> {
  const normal = texts.map(normalUri);
  const others = texts.filter((text, n) => text !== normal[n]);
  if (others.length === 0) return normal;
  const stored = new Set(await storedAmong([...new Set(others)]));
  return texts.map((text, n) => (stored.has(text) ? text : (normal[n] as string)));
}

type Method = (request: never, context: never) => unknown;

/** Returns methods whose requests have each URI in the spelling in which it is stored. */
export function withSpelling<Methods extends { readonly [name in keyof Methods]: Method }>(
  methods: Methods,
  storedAmong: StoredAmong,
): Methods {
  const wrap =
    (method: Method) =>
    async (request: object, context: never): Promise<unknown> => {
      const named = namesIn(request);
      const texts = await spelled(named, storedAmong);
      const changed = new Map(named.map((text, n) => [text, texts[n] as string]));
      return method(
        (named.every((text, n) => text === texts[n]) ? request : respelled(request, changed)) as never,
        context,
      );
    };
  return Object.fromEntries(
    Object.entries<Method>(methods).map(([name, method]) => [name, wrap(method)]),
  ) as unknown as Methods;
}

const isUriLike = (value: unknown): value is string => typeof value === "string" && /^https?:/i.test(value);

const valuesOf = (request: object): unknown[] =>
  Object.entries(request).flatMap(([name, value]: [string, unknown]) => (FIELDS.has(name) ? value : []));

const namesIn = (request: object): string[] =>
  valuesOf(request).flatMap((value) => {
    if (isUriLike(value)) return value;
    return typeof value === "object" && value !== null ? namesIn(value) : [];
  });

function respelled(value: unknown, changed: ReadonlyMap<string, string>): unknown {
  if (typeof value === "string") return changed.get(value) ?? value;
  if (Array.isArray(value)) return value.map((item) => respelled(item, changed));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) => [name, FIELDS.has(name) ? respelled(field, changed) : field]),
  );
}
