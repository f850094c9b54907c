import { grouped as groupedBy } from "../../kernel/concurrency.js";
import { printable } from "../../kernel/errors.js";
import type { Removal } from "./operations.js";
import type { Causes, Report } from "./redrive.js";
import { decodeBody, type StoredDeadLetter } from "./stored-dead-letter.js";

const withCommas = (count: number): string => count.toLocaleString("en-US");
const dateOf = (ms: number): string => new Date(ms).toISOString();

/** A group has the dead letters of one cause. Times are in ms since the epoch. */
interface Group {
  /** The error is that of the oldest one. */
  readonly error: string;
  readonly reason: string;
  readonly event: string;
  count: number;
  firstAt: number;
  lastAt: number;
  readonly seqs: number[];
  readonly countOfAuthor: Map<string, number>;
}

/** Number of dead letters of a group that a text names, as does an answer without room for more. */
export const SEQS_SHOWN = 5;
/** Maximum number of dead letters that one request redrives or removes. */
export const MAX_SEQS = 10_000;

/** Groups dead letters (with bodies) by reason, event and error, the biggest group first. */
export async function grouped(deadLetters: AsyncIterable<StoredDeadLetter>): Promise<Group[]> {
  const groups = new Map<string, Group>();
  for await (const deadLetter of deadLetters) {
    const { reason, event, error } = deadLetter.summary;
    const key = JSON.stringify([reason, event, shapeOf(error)]);
    const group = groups.get(key) ?? newGroup(deadLetter);
    groups.set(key, group);
    add(group, deadLetter);
  }
  return [...groups.values()].sort((a, b) => b.count - a.count || a.firstAt - b.firstAt);
}

function newGroup({ summary, failedAt }: StoredDeadLetter): Group {
  const { error, reason, event } = summary;
  return { error, reason, event, count: 0, firstAt: failedAt, lastAt: failedAt, seqs: [], countOfAuthor: new Map() };
}

function add(group: Group, { summary, failedAt, body }: StoredDeadLetter): void {
  group.count++;
  group.firstAt = Math.min(group.firstAt, failedAt);
  group.lastAt = Math.max(group.lastAt, failedAt);
  if (group.seqs.length < MAX_SEQS) group.seqs.push(summary.seq);
  const author = authorOf(body);
  if (author !== undefined) group.countOfAuthor.set(author, (group.countOfAuthor.get(author) ?? 0) + 1);
}

/** Of dead letters with bodies, returns the summaries of those about a drop. */
export async function aboutDrop(deadLetters: AsyncIterable<StoredDeadLetter>, drop: string) {
  const summaries: StoredDeadLetter["summary"][] = [];
  for await (const { summary, body } of deadLetters) {
    const { drop_id } = Object(decodeBody(body).value) as Record<string, unknown>;
    if (drop_id === drop) summaries.push(summary);
  }
  return summaries;
}

/** The shape is equal for errors that differ only in what they quote or count. */
function shapeOf(error: string): string {
  return error.replaceAll(/"[^"]*"|'[^']*'/g, '""').replaceAll(/\d+/g, "0");
}

function authorOf(body: Uint8Array): string | undefined {
  const { user_id, following_id } = Object(decodeBody(body).value) as Record<string, unknown>;
  return [user_id, following_id].find((id): id is string => typeof id === "string" && id !== "");
}

/** `seqs` names the oldest ones, at most 10,000, and `authors` those with most dead letters. */
export const groupsAsJson = (groups: readonly Group[]) =>
  groups.map(({ firstAt, lastAt, countOfAuthor, ...group }) => ({
    ...group,
    first_at: dateOf(firstAt),
    last_at: dateOf(lastAt),
    author_count: countOfAuthor.size,
    authors: byCount(countOfAuthor)
      .slice(0, AUTHORS_SHOWN)
      .map(([author_id, count]) => ({ author_id, count })),
  }));

const AUTHORS_SHOWN = 10;

const byCount = (countOfAuthor: ReadonlyMap<string, number>) => [...countOfAuthor].sort(([, a], [, b]) => b - a);

export function groupsAsText(groups: readonly Group[]): string {
  if (groups.length === 0) return "no dead letters";
  return groups.map(groupAsText).join("\n");
}

function groupAsText({ error, reason, event, count, firstAt, lastAt, seqs, countOfAuthor }: Group): string {
  const authors = authorsAsText(countOfAuthor);
  const more = count > SEQS_SHOWN ? ", …" : "";
  return [
    `${withCommas(count)} x ${printable(error)}${authors === "" ? "" : ` for ${authors}`}`,
    `    ${printable(`${reason} ${event}`)}, from ${dateOf(firstAt)} to ${dateOf(lastAt)}, dead letters ${seqs.slice(0, SEQS_SHOWN).join(", ")}${more}`,
  ].join("\n");
}

function authorsAsText(countOfAuthor: ReadonlyMap<string, number>): string {
  const [first] = byCount(countOfAuthor);
  if (!first) return "";
  const [author, count] = first;
  if (countOfAuthor.size === 1) return `author ${printable(author)}`;
  return `${withCommas(countOfAuthor.size)} authors, most often ${printable(author)} (${withCommas(count)})`;
}

export function deadLetterAsLine({ summary }: StoredDeadLetter): string {
  const { seq, reason, event, error, failed_at, redrive_count } = summary;
  const redriven = redrive_count === 0 ? "" : `  redriven ${redrive_count} times`;
  return printable(`${seq}  ${failed_at}  ${reason}  ${event}${redriven}  ${error}`);
}

export function deadLetterAsText({ summary, subject, storedAt, headers, body }: StoredDeadLetter): string {
  const lines = [...headers.entries()].map(([name, value]) => `${name}: ${value}`);
  const head = [`Dead letter ${summary.seq} of ${subject}, stored ${dateOf(storedAt)}`, ...lines];
  return [...head.map(printable), "", bodyAsText(body)].join("\n");
}

function bodyAsText(body: Uint8Array): string {
  const { value, text } = decodeBody(body);
  const lines = value === undefined ? (text ?? Buffer.from(body).toString("latin1")) : JSON.stringify(value, null, 2);
  return lines.split("\n").map(printable).join("\n");
}

export function reportAsText({ redriven, overtaken, refused, failed }: Report, dryRun: boolean): string {
  const lists = Object.entries({ overtaken, refused, failed }).filter(([, list]) => list.length > 0);
  if (redriven.length + lists.length === 0) return "no dead letter matches";
  const counts = [
    `${withCommas(redriven.length)} ${dryRun ? "would be redriven" : "redriven"}`,
    ...lists.map(([name, list]) => `${withCommas(list.length)} ${name}`),
  ];
  return [counts.join(", "), ...lists.flatMap(([name, list]) => causesAsText(name, list))].join("\n");
}

export function removalAsText({ removed, failed }: Removal, dryRun: boolean): string {
  if (removed.length + failed.length === 0) return "no dead letter matches";
  const counted = `${withCommas(removed.length)} ${dryRun ? "would be deleted" : "deleted"}`;
  return [counted, ...causesAsText("failed", failed)].join("\n");
}

function causesAsText(name: string, list: Causes): string[] {
  const groups = [...groupedBy(list, ({ why }) => why)];
  return groups.map(([why, all]) => `  ${name} ${rangesAsText(all.map(({ seq }) => seq))}: ${printable(why)}`);
}

const RANGES_SHOWN = 20;

/** Shows neighbours as one range; `--json` names each. */
function rangesAsText(seqs: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const seq of seqs) {
    const last = ranges.at(-1);
    if (last?.[1] === seq - 1) last[1] = seq;
    else ranges.push([seq, seq]);
  }
  const shown = ranges.slice(0, RANGES_SHOWN).map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`));
  return `${shown.join(", ")}${ranges.length > RANGES_SHOWN ? ", …" : ""}`;
}
