import { DECLARED, type Declared } from "./declared.js";

export interface KeyKind extends Declared {
  /** Pattern of the names of its keys. */
  readonly keys: string;
}

export const KINDS: readonly KeyKind[] = Object.entries(DECLARED).map(([keys, declared]) => ({ keys, ...declared }));

const TOKEN = "[A-Za-z0-9_=-]+";

const PATTERNS: Readonly<Record<string, string>> = {
  "<user>": `(?<user>${TOKEN})`,
  "<drop>": `(?<drop>${TOKEN})`,
  "<list>": TOKEN,
  "<timeline>": `timeline:(?:local|global|list:${TOKEN}|(?:home|author):(?<user>${TOKEN}))`,
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
