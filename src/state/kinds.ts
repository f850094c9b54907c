/** How the content of a key names a user or holds their drops. */
export type Holding =
  | "set"
  | "sorted set"
  | "hash"
  | "ids"
  | "connections"
  | "drops"
  | "bylines"
  | "edges"
  | "unfollowers"
  | "waiting"
  | "actor";

export interface KeyKind {
  /** The names of its keys. `<user>` and `<drop>` are tokens: such a key is of that user or drop, and goes with them. */
  readonly keys: string;
  /** A key that is of nobody, or of somebody else, names others so. */
  readonly holds?: Holding;
  /** The user of such a key was shown drops of those it names, or the drops it holds. */
  readonly shows?: true;
  /** Such keys may go on naming the user, for this reason. */
  readonly stays?: string;
}

const TOMBSTONE = "a tombstone, until its age";
const MARKER = "the marker that refuses the id";

/**
 * A new kind of key is added here: a walk removes by it, and a verification looks by it. The first that fits counts.
 */
export const KINDS: readonly KeyKind[] = [
  { keys: "timeline:local", holds: "drops" },
  { keys: "timeline:global", holds: "drops" },
  { keys: "timeline:home:<user>", holds: "drops", shows: true },
  { keys: "timeline:author:<user>", holds: "drops" },
  { keys: "timeline:tombstones", stays: TOMBSTONE },
  { keys: "timeline:x:erased", holds: "sorted set", stays: MARKER },
  { keys: "timeline:x:logouts", holds: "sorted set" },
  { keys: "timeline:x:pulled", holds: "hash" },
  { keys: "timeline:x:posted:<user>" },
  { keys: "timeline:x:reposted:<user>" },
  { keys: "timeline:x:pulls:{timeline:home:<user>}", holds: "set", shows: true },
  { keys: "timeline:x:hidden:{timeline:home:<user>}", holds: "hash" },
  { keys: "timeline:x:hidden-staged:{timeline:home:<user>}", holds: "hash" },
  { keys: "timeline:x:hidden-changes:{timeline:home:<user>}", holds: "hash" },
  { keys: "timeline:x:renewal:{timeline:home:<user>}" },
  { keys: "timeline:x:hiders:<user>", holds: "set" },
  { keys: "timeline:x:bylines:{<timeline>}", holds: "bylines" },
  { keys: "timeline:x:remote:{timeline:global}", holds: "drops" },
  { keys: "timeline:x:taken:{<timeline>}", holds: "drops" },
  { keys: "timeline:x:rebuilding:<timeline>" },
  // A rebuild looks for tombstones after it has written what is staged.
  { keys: "timeline:x:staged:{<timeline>}:<rest>" },
  { keys: "timeline:x:generation:<user>" },
  { keys: "timeline:x:edges:{<number>}", holds: "edges" },
  { keys: "timeline:x:unfollowers:{<number>}:<user>", holds: "unfollowers" },
  { keys: "timeline:x:deleted:{<number>}:<user>", stays: TOMBSTONE },
  { keys: "timeline:x:created-at:<drop>", stays: TOMBSTONE },
  { keys: "timeline:x:actor:<drop>", holds: "actor" },
  { keys: "timeline:x:direct:<drop>" },
  { keys: "timeline:x:fanout:<word>:<drop>" },
  { keys: "timeline:x:waiting", holds: "waiting" },
  { keys: "timeline:x:users:<word>-count:{<user>}" },
  { keys: "timeline:x:users:<word>-generation:{<user>}" },
  { keys: "timeline:x:users:<word>:{<user>}", holds: "ids" },
  { keys: "timeline:x:limit:<word>:{<user>}<rest>" },
  { keys: "timeline:x:asked:<user>" },
  { keys: "timeline:x:reads:<user>" },
  { keys: "timeline:x:source-<word>:{timeline:x:source-tokens}", holds: "sorted set" },
  // Processes of 0.2 have these two.
  { keys: "{timeline:x:source-tokens}:taken", holds: "sorted set" },
  { keys: "{timeline:x:source-tokens}:waiting", holds: "sorted set" },
  { keys: "timeline:x:source-tokens" },
  { keys: "analysis:<user>:<word>:<word>" },
  { keys: "sse_recent:users", holds: "sorted set" },
  { keys: "sse_recent:users:{<number>}", holds: "sorted set" },
  { keys: "sse_recent:connections", holds: "connections" },
  { keys: "sse_recent:connections:{<number>}", holds: "connections" },
  { keys: "sse_recent:listing:<user>" },
  { keys: "sse_recent:listing:{<number>}:<user>" },
  { keys: "sse_connections:user:<user>" },
  { keys: "sse_connection:<word>.<user>" },
  { keys: "timeline:x:attempts:<rest>" },
  { keys: "timeline:x:continuity:{<number>}" },
  { keys: "timeline:x:place:{<number>}" },
  { keys: "timeline:x:unreconciled" },
  { keys: "timeline:x:reconciled" },
  { keys: "timeline:x:rights" },
  { keys: "timeline:x:fill" },
  { keys: "timeline:x:filling:<number>" },
  { keys: "timeline:x:trimmed" },
  { keys: "timeline:x:crossing" },
  { keys: "timeline:x:refilling" },
  { keys: "timeline:x:replaying" },
  { keys: "timeline:x:auditing" },
  { keys: "timeline:x:trimming" },
];

const TOKEN = "[A-Za-z0-9_=-]+";

const PATTERNS: Readonly<Record<string, string>> = {
  "<user>": `(?<user>${TOKEN})`,
  "<drop>": `(?<drop>${TOKEN})`,
  "<timeline>": `timeline:(?:local|global|(?:home|author):(?<user>${TOKEN}))`,
  "<number>": "\\d+",
  "<word>": "[^:{}.]*?",
  "<rest>": ".*",
};

// Keys have no other characters that are special in a pattern.
const escaped = (text: string): string => text.replaceAll(/[{}.]/g, "\\$&");

const patternOf = ({ keys }: KeyKind): RegExp => {
  const parts = keys.split(/(<[a-z]+>)/).map((part) => PATTERNS[part] ?? escaped(part));
  return new RegExp(`^${parts.join("")}$`, "s");
};

const MATCHERS = KINDS.map((kind) => ({ kind, head: kind.keys.replace(/<.*$/s, ""), pattern: patternOf(kind) }));

export interface Classified {
  readonly kind: KeyKind;
  readonly user?: string | undefined;
  readonly drop?: string | undefined;
}

export function classify(key: string): Classified | undefined {
  for (const { kind, head, pattern } of MATCHERS) {
    if (!key.startsWith(head)) continue;
    const match = pattern.exec(key);
    if (match) return { kind, user: match.groups?.["user"], drop: match.groups?.["drop"] };
  }
  return undefined;
}
