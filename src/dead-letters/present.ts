import type { Letter } from "./dead-letter.js";
import type { Group } from "./groups.js";
import type { Report, Verdicts } from "./redrive.js";
import type { Removal } from "./remove.js";

const number = new Intl.NumberFormat("en-US");

/** A text that came from outside, safe to print: what would steer a terminal is spelled out. */
function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (one) => {
    const code = (one.codePointAt(0) as number).toString(16);
    return `\\u{${code}}`;
  });
}

/** Groups as lines for a person, in the order given. */
export function groupsAsText(groups: readonly Group[]): string {
  if (groups.length === 0) return "no letters";
  return groups.map(groupAsText).join("\n");
}

function groupAsText(group: Group): string {
  const { error, reason, event, count, firstAt, lastAt, seqs } = group;
  const about = aboutWhom(group.authors);
  const more = count > seqs.length ? ", …" : "";
  return [
    `${number.format(count)} x ${printable(error)}${about === "" ? "" : ` for ${about}`}`,
    `    ${printable(`${reason} ${event}`)}, from ${dateOf(firstAt)} to ${dateOf(lastAt)}, letters ${seqs.join(", ")}${more}`,
  ].join("\n");
}

function aboutWhom(authors: ReadonlyMap<string, number>): string {
  const [first] = [...authors].sort(([, a], [, b]) => b - a);
  if (!first) return "";
  const [author, count] = first;
  if (authors.size === 1) return `author ${printable(author)}`;
  return `${number.format(authors.size)} authors, most often ${printable(author)} (${number.format(count)})`;
}

const dateOf = (ms: number): string => new Date(ms).toISOString();

/** One letter on a line. */
export function letterAsLine({ listed }: Letter): string {
  const { seq, reason, event, error, failed_at, redrive_count } = listed;
  const redriven = redrive_count === 0 ? "" : `  redriven ${redrive_count} times`;
  return printable(`${seq}  ${failed_at}  ${reason}  ${event}${redriven}  ${error}`);
}

/** One letter whole, for a person: every header, then the body. */
export function letterAsText(letter: Letter): string {
  const headers = [...letter.headers.entries()].map(([name, value]) => `${name}: ${value}`);
  const head = [`Letter ${letter.listed.seq} of ${letter.subject}, stored ${dateOf(letter.storedAt)}`, ...headers];
  return [...head.map(printable), "", bodyAsText(letter.body)].join("\n");
}

function bodyAsText(body: Uint8Array): string {
  const { value, text } = understood(body);
  const lines = value === undefined ? (text ?? Buffer.from(body).toString("latin1")) : JSON.stringify(value, null, 2);
  return lines.split("\n").map(printable).join("\n");
}

/** A letter whole, as JSON: the body as `json`, `utf8` or `base64`, as `body_encoding` says. */
export function letterAsJson(letter: Letter): Record<string, unknown> {
  const { value, text } = understood(letter.body);
  const body =
    value !== undefined
      ? { body_encoding: "json", body: value }
      : text !== undefined
        ? { body_encoding: "utf8", body: text }
        : { body_encoding: "base64", body: Buffer.from(letter.body).toString("base64") };
  return {
    ...letter.listed,
    subject: letter.subject,
    stored_at: dateOf(letter.storedAt),
    headers: Object.fromEntries(letter.headers.entries()),
    size: letter.body.byteLength,
    ...body,
  };
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function understood(body: Uint8Array): { value?: unknown; text?: string } {
  let text: string;
  try {
    text = utf8.decode(body);
  } catch {
    return {};
  }
  try {
    return { text, value: JSON.parse(text) as unknown };
  } catch {
    return { text };
  }
}

/** What became of letters, for a person. */
export function reportAsText(report: Report, dryRun: boolean): string {
  const { redriven, overtaken, refused, failed } = report;
  const total = redriven.length + overtaken.length + refused.length + failed.length;
  if (total === 0) return "no letter matches";
  const counts = [`${number.format(redriven.length)} ${dryRun ? "would be redriven" : "redriven"}`];
  for (const [name, list] of Object.entries({ overtaken, refused, failed })) {
    if (list.length > 0) counts.push(`${number.format(list.length)} ${name}`);
  }
  const lines = Object.entries({ overtaken, refused, failed }).flatMap(([name, list]) => whys(name, list));
  return [counts.join(", "), ...lines].join("\n");
}

/** What became of letters that were to be deleted, for a person. */
export function removalAsText({ removed, failed }: Removal, dryRun: boolean): string {
  if (removed.length + failed.length === 0) return "no letter matches";
  const counted = `${number.format(removed.length)} ${dryRun ? "would be deleted" : "deleted"}`;
  return [counted, ...whys("failed", failed)].join("\n");
}

/** Every letter is named; those with the same cause share a line. */
function whys(name: string, list: Verdicts): string[] {
  const causes = new Map<string, number[]>();
  for (const { seq, why } of list) {
    const seqs = causes.get(why);
    if (seqs) seqs.push(seq);
    else causes.set(why, [seq]);
  }
  return [...causes].map(([why, seqs]) => `  ${name} ${seqs.join(", ")}: ${printable(why)}`);
}
