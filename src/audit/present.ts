import type { Differing, Report } from "./audit.js";
import { type Difference, KINDS, type Kind } from "./compare.js";

/** So many entries of a kind are named for a person. */
const MOST_NAMED = 10;

const quoted = (id: string): string => JSON.stringify(id);

/** The share of users compared whose timeline differs, 0 to 1. */
const rateOf = ({ judged, differing }: Report): number => (judged === 0 ? 0 : differing.length / judged);

/** A report for scripts. */
export function reportAsJson(report: Report): Record<string, unknown> {
  const { judged, incomplete, undecided, failed, differing, lagMs, repaired, remaining } = report;
  return {
    users: judged,
    differ: differing.length,
    rate: rateOf(report),
    lag_ms: Math.round(lagMs),
    incomplete,
    undecided,
    failed,
    differences: differing.map(differingAsJson),
    repaired: repaired.length,
    remaining: remaining.map(differingAsJson),
  };
}

function differingAsJson({ user, differences }: Differing): Record<string, unknown> {
  const { missing, unexpected, wrong_score } = byKind(differences);
  return {
    user,
    missing: missing.map(({ drop }) => drop),
    unexpected: unexpected.map(({ drop }) => drop),
    wrong_score: wrong_score.map(({ drop, score, expected }) => ({ drop, score, expected })),
  };
}

/** A report for a person; ids are quoted, so that none steers a terminal. */
export function reportAsText(report: Report): string {
  const { judged, incomplete, undecided, failed, differing, lagMs, repaired, remaining } = report;
  const lines = differing.flatMap(differingAsLines);
  for (const { user, error } of failed) lines.push(`${quoted(user)} could not be looked at: ${error}`);
  if (undecided.length > 0)
    lines.push(`${undecided.length} undecided: events waited for too long to tell what is under way from what is lost`);
  if (repaired.length > 0) lines.push(`${repaired.length} rebuilt`);
  lines.push(...remaining.flatMap(({ user }) => `${quoted(user)} differs still`));
  lines.push(
    `${differing.length} of ${judged} users differ (${(100 * rateOf(report)).toFixed(2)} %), ${incomplete} not complete, lag ${(lagMs / 1_000).toFixed(1)} s`,
  );
  return lines.join("\n");
}

function differingAsLines({ user, differences }: Differing): string[] {
  const kinds = byKind(differences);
  return [quoted(user), ...KINDS.filter((kind) => kinds[kind].length > 0).map((kind) => kindAsLine(kind, kinds[kind]))];
}

function kindAsLine(kind: Kind, of: readonly Difference[]): string {
  const named = of.slice(0, MOST_NAMED).map(({ drop, score, expected }) => {
    const wrong = kind === "wrong_score" ? ` (${score}, not ${expected})` : "";
    return `${quoted(drop)}${wrong}`;
  });
  return `  ${of.length} ${kind.replace("_", " ")}: ${named.join(", ")}${of.length > MOST_NAMED ? ", …" : ""}`;
}

function byKind(differences: readonly Difference[]): Record<Kind, Difference[]> {
  const of = (kind: Kind): Difference[] => differences.filter((one) => one.kind === kind);
  return { missing: of("missing"), unexpected: of("unexpected"), wrong_score: of("wrong_score") };
}
