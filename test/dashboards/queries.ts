import type { Query } from "./build.js";

/** Grafana replaces it by a time of at least four scrapes. */
const WINDOW = "[$__rate_interval]";

const by = (labels: readonly string[]): string => (labels.length === 0 ? "" : ` by (${labels.join(", ")})`);
const legendOf = (labels: readonly string[], otherwise: string): string =>
  labels.length === 0 ? otherwise : labels.map((label) => `{{${label}}}`).join(" ");

/** Increments of a counter a second, of all processes together. */
export const perSecond = (counter: string, ...labels: string[]): Query => [
  `sum${by(labels)} (rate(${counter}${WINDOW}))`,
  legendOf(labels, "all"),
];

/** The sum of a gauge over the processes. */
export const sumOf = (gauge: string, ...labels: string[]): Query => [
  `sum${by(labels)} (${gauge})`,
  legendOf(labels, "all"),
];

/** The maximum of a gauge: all processes sample the same server. */
export const maxOf = (gauge: string, ...labels: string[]): Query => [
  `max${by(labels)} (${gauge})`,
  legendOf(labels, "all"),
];

/** A percentile of a histogram; `selector` chooses series by their labels. */
export const percentile = (
  percent: number,
  histogram: string,
  labels: readonly string[] = [],
  selector = "",
): Query => [
  `histogram_quantile(${percent / 100}, sum${by(["le", ...labels])} (rate(${histogram}_bucket${selector}${WINDOW})))`,
  legendOf(labels, `${percent} %`),
];

/** The median, and the 99th percentile. */
export const medianAndTail = (histogram: string, selector = ""): Query[] =>
  [50, 99].map((percent) => percentile(percent, histogram, [], selector));

/** The share of a counter's increments that `selector` chooses; 0 while it chooses no series. */
export function shareOf(counter: string, selector: string, labels: readonly string[] = []): Query {
  const rate = (chosen: string): string => `sum${by(labels)} (rate(${counter}${chosen}${WINDOW}))`;
  return [`(${rate(selector)} or 0 * ${rate("")}) / ${rate("")}`, legendOf(labels, "all")];
}

/** gRPC codes that are not the caller's fault, as in the rules. */
export const FAILED = '{code=~"INTERNAL|UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|UNKNOWN"}';
