import { aimOf, type Row, targetOf } from "./result.js";

interface Bar {
  readonly label: string;
  /** 1: the target is reached; more is better, whichever way the ratio counts. */
  readonly reached: number;
  readonly text: string;
}

const WIDTH = 900;
const LABELS = 380;
const TARGET_AT = 260;
const LINE = 22;
/** A longer one is cut off. */
const MOST = 1.6;
const COLOURS = { reached: "#2a7f4f", missed: "#b5651d" };

/** Bars of how much of its target each figure reaches; the line is the target. */
export function drawRatios(reports: readonly { readonly name: string; readonly rows: readonly Row[] }[]): string {
  const bars = reports.flatMap(({ name, rows }) => rows.flatMap((row) => barOf(name, row)));
  const height = LINE * (bars.length + 1);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="12">
<title>Ratios of all benchmarks as shares of their targets</title>
<rect width="100%" height="100%" fill="#ffffff"/>
${bars.map(drawn).join("\n")}
<line x1="${LABELS + TARGET_AT}" y1="4" x2="${LABELS + TARGET_AT}" y2="${height - LINE + 8}" stroke="#222222" stroke-dasharray="4 3"/>
<text x="${LABELS + TARGET_AT}" y="${height - 2}" text-anchor="middle" fill="#222222">target</text>
</svg>
`;
}

function barOf(bench: string, row: Row): Bar[] {
  const aim = aimOf(row);
  if (row.target === undefined || aim === undefined) return [];
  const reached = "atLeast" in row.target ? aim / row.target.atLeast : row.target.atMost / aim;
  return [{ label: `${bench}: ${row.name}`, reached, text: `${Number(aim.toPrecision(3))} (${targetOf(row)})` }];
}

function drawn({ label, reached, text }: Bar, at: number): string {
  const y = 4 + at * LINE;
  const width = Math.round(Math.min(reached, MOST) * TARGET_AT);
  const colour = reached >= 1 ? COLOURS.reached : COLOURS.missed;
  return [
    `<text x="${LABELS - 8}" y="${y + 13}" text-anchor="end" fill="#222222">${escaped(label)}</text>`,
    `<rect x="${LABELS}" y="${y}" width="${width}" height="${LINE - 6}" fill="${colour}"/>`,
    `<text x="${LABELS + width + 6}" y="${y + 13}" fill="#222222">${escaped(text)}</text>`,
  ].join("\n");
}

const escaped = (text: string): string => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
