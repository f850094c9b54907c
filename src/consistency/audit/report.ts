import { printable } from "../../kernel/errors.js";
import type { Differing, Report, Reports } from "./audit.js";
import { type Difference, KINDS, type Kind } from "./audit.js";

const MOST_NAMED = 10;

const quoted = (id: string): string => printable(JSON.stringify(id));

const rateOf = ({ judged, differing }: Report): number => (judged === 0 ? 0 : differing.length / judged);

/** Returns true if something differs, also after a fix, or if the audit could not tell. */
export const isLeftWrong = (report: Report, { fix }: { readonly fix: boolean }): boolean =>
  [fix ? report.remaining : report.differing, report.unknown, report.undecided, report.failed, report.unrepaired].some(
    ({ length }) => length > 0,
  );

const NONE: Report = {
  judged: 0,
  incomplete: 0,
  lagMs: 0,
  unknown: [],
  undecided: [],
  failed: [],
  differing: [],
  repaired: [],
  repairMs: [],
  remaining: [],
  unrepaired: [],
};

/** Reports for scripts. Local and global are included only if they were audited. */
export function reportsAsJson({ home = NONE, local, global }: Reports): Record<string, unknown> {
  return {
    ...homesAsJson(home),
    shared: { ...(local ? { local: sharedAsJson(local) } : {}), ...(global ? { global: sharedAsJson(global) } : {}) },
  };
}

function homesAsJson(report: Report): Record<string, unknown> {
  const { judged, incomplete, unknown, undecided, failed, unrepaired, differing, lagMs, repaired, remaining } = report;
  const userOf = ({ name, differences }: Differing) => ({ user: name, ...dropsByKind(differences) });
  return {
    users: judged,
    differ: differing.length,
    rate: rateOf(report),
    lag_ms: Math.round(lagMs),
    incomplete,
    unknown,
    undecided,
    failed: [...failed, ...unrepaired].map(({ name, error }) => ({ user: name, error })),
    differences: differing.map(userOf),
    repaired: repaired.length,
    remaining: remaining.map(userOf),
  };
}

function sharedAsJson(report: Report): Record<string, unknown> {
  const { failed, unrepaired, differing, repaired, remaining, incomplete, undecided } = report;
  const counts = { differing: differing.length, failed: failed.length, undecided: undecided.length, incomplete };
  const [result = "same"] = Object.entries(counts).find(([, count]) => count > 0) ?? [];
  const error = [...failed, ...unrepaired][0]?.error;
  return {
    result,
    ...dropsByKind(differing[0]?.differences ?? []),
    repaired: repaired.length > 0 && remaining.length === 0,
    ...(error === undefined ? {} : { error }),
  };
}

function dropsByKind(differences: readonly Difference[]): Record<Kind, unknown> {
  return {
    missing: ofKind("missing", differences).map(({ drop }) => drop),
    unexpected: ofKind("unexpected", differences).map(({ drop }) => drop),
    wrong_score: ofKind("wrong_score", differences).map(({ drop, score, expected }) => ({ drop, score, expected })),
  };
}

/** Reports for a person. Ids are quoted, so that none controls the terminal. */
export function reportsAsText({ home, local, global }: Reports): string {
  return [
    ...(home ? homesAsLines(home) : []),
    ...(local ? sharedAsLines("local", local) : []),
    ...(global ? sharedAsLines("global", global) : []),
  ].join("\n");
}

function homesAsLines(report: Report): string[] {
  const { judged, incomplete, differing, lagMs } = report;
  const counts = `${differing.length} of ${judged} users differ (${(100 * rateOf(report)).toFixed(2)} %)`;
  return [
    ...foundAsLines(report, quoted),
    counts + (incomplete > 0 ? `; ${incomplete} more are not complete, and their next read rebuilds them` : ""),
    `the oldest unapplied event has waited ${(lagMs / 1_000).toFixed(1)} s`,
  ];
}

function sharedAsLines(name: string, report: Report): string[] {
  const { result } = sharedAsJson(report);
  const said = { differing: "differs", same: "correct", incomplete: "not complete, and its next read rebuilds it" };
  return [...foundAsLines(report, (id) => id), `${name}: ${said[result as keyof typeof said] ?? result}`];
}

function foundAsLines(report: Report, nameOf: (name: string) => string): string[] {
  const { unknown, undecided, failed, unrepaired, differing, repaired, remaining } = report;
  const lines = differing.flatMap(({ name, differences }) => [
    nameOf(name),
    ...KINDS.flatMap((kind) => kindAsLines(kind, ofKind(kind, differences))),
  ]);
  for (const name of unknown)
    lines.push(`${nameOf(name)} is no user that the upstreams know: no drop, follow, follower or profile`);
  for (const { name, error } of failed) lines.push(`${nameOf(name)} could not be audited: ${error}`);
  for (const { name, error } of unrepaired) lines.push(`${nameOf(name)} could not be rebuilt: ${error}`);
  if (undecided.length > 0)
    lines.push(`${undecided.length} undecided: events waited too long to tell late ones from lost ones`);
  if (repaired.length > 0) lines.push(`${repaired.length} rebuilt`);
  for (const { name } of remaining) lines.push(`${nameOf(name)} differs still`);
  return lines;
}

function kindAsLines(kind: Kind, differences: readonly Difference[]): string[] {
  if (differences.length === 0) return [];
  const named = differences.slice(0, MOST_NAMED).map(({ drop, score, expected }) => {
    const wrong = kind === "wrong_score" ? ` (${score}, not ${expected})` : "";
    return `${quoted(drop)}${wrong}`;
  });
  return [
    `  ${differences.length} ${kind.replace("_", " ")}: ${named.join(", ")}${differences.length > MOST_NAMED ? ", …" : ""}`,
  ];
}

const ofKind = (kind: Kind, differences: readonly Difference[]): Difference[] =>
  differences.filter((difference) => difference.kind === kind);
