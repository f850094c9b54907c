import { NAMES_PEOPLE } from "../../contracts/people.js";
import { DLQ_HEADER } from "../../contracts/subjects.js";
import type { DeadLetter, StoreDeadLetter } from "../../delivery/dead-letter.js";
import { idFault } from "../../kernel/ids.js";
import type { Erased } from "./erasures.js";

/** Maximum number of ids that are looked up for one body, which may be as large as a message. */
const MOST_IDS = 20_000;

/** Fields of events that name no user: a drop, or a number, may have the id of a user. */
const OTHER = new Set(
  "drop_id repost_of created_at updated_at expires_at reposts_only visibility revision version seq producer traceparent".split(
    " ",
  ),
);

/** The same fields with their values. */
const OTHER_FIELDS = new RegExp(
  String.raw`"?\b(?:${[...OTHER].join("|")})"?\s*[:=]\s*(?:"(?:[^"\\]|\\.)*"|[^\s,{}[\]"]+)`,
  "g",
);

/** The name of a field names nobody, though it may equal an id. */
const NAMES = /"(?<=[{,]\s*")(?:[^"\\]|\\.)*"\s*:/g;

/** Separators of ids. An id may hold spaces, or be a URI: a text is cut in several ways. */
const BETWEEN = [/(?<!\\)"/, /[\r\n"',;{}[\]=]+/, /[\s"'`,;{}[\]()<>\\=]+/, /[\s"'`,;{}[\]()<>\\:=&|]+/];

/** Tokens of a JSON text. A string before a colon is the name of a field. */
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|[{}[\]]|[^\s,:{}[\]"]+/g;

/**
 * Returns the values of a JSON text that may name a user: strings, and numbers in fields that name people. The text is
 * not parsed: a large number would be rounded, and a field that comes twice would count once.
 */
function valuesIn(json: string): string[] {
  const values: string[] = [];
  const fields = [""];
  for (const [token, string, colon] of json.matchAll(TOKEN)) {
    const field = fields.at(-1) ?? "";
    if (string !== undefined && colon !== undefined) fields[fields.length - 1] = unescaped(string.slice(1, -1));
    else if (token === "{" || token === "[") fields.push(token === "[" ? field : "");
    else if (token === "}" || token === "]") fields.pop();
    else if (string === undefined ? NAMES_PEOPLE.test(field) : !OTHER.has(field)) values.push(token);
  }
  return values;
}

/** Finds every text in a body that may be the id of a user. The body may be anything, JSON or not. */
export function idsIn(body: Uint8Array): ReadonlySet<string> {
  const whole = Buffer.from(body).toString();
  const text = isJson(whole) ? valuesIn(whole).join("\n") : whole.replaceAll(OTHER_FIELDS, " ").replaceAll(NAMES, " ");
  const ids = new Set<string>();
  for (const between of BETWEEN)
    for (const part of text.split(between)) {
      const id = unescaped(part).trim();
      if (idFault(id) === undefined && ids.size < MOST_IDS) ids.add(id);
    }
  return ids;
}

const ESCAPE = /\\(?:u([\da-fA-F]{4})|(["\\/])|[bfnrt])/g;

/**
 * Decodes escapes. Some producers escape all but ASCII, and slashes. A body may have as many broken escapes as
 * characters.
 */
const unescaped = (part: string): string =>
  part.includes("\\")
    ? part.replaceAll(ESCAPE, (_, hex?: string, plain = "\n") =>
        hex === undefined ? (plain as string) : String.fromCharCode(Number.parseInt(hex, 16)),
      )
    : part;

/** Reasons of dead letters whose fields say little: the body was refused or cut. */
const DISTRUSTED: ReadonlySet<string | undefined> = new Set(["invalid", "toolarge"]);

/** Returns true if the fields of a dead letter may fail to name everybody it is about. */
export function isBroken(reason: string | undefined, body: Uint8Array): boolean {
  return DISTRUSTED.has(reason) || !isJson(Buffer.from(body).toString());
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Resolves to true if a dead letter that cannot be redriven as it is names an erased user. */
export type NamesErased = (deadLetter: Pick<DeadLetter, "headers" | "body">) => Promise<boolean>;

export const createNamesErased =
  ({ among }: Pick<Erased, "among">): NamesErased =>
  async ({ headers, body }) =>
    isBroken(headers[DLQ_HEADER.reason], body) && (await among([...idsIn(body)])).size > 0;

/** Stores dead letters, except those that an erasure has to remove. */
export const storeUnlessErased =
  (store: StoreDeadLetter, namesErased: NamesErased): StoreDeadLetter =>
  async (deadLetter) => {
    if (!(await namesErased(deadLetter))) await store(deadLetter);
  };
