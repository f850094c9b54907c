import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import { stringify } from "yaml";
import { dashboardFiles, FOLDER } from "../../dashboards/main.js";
import { readMetricsList } from "../../support/metrics-list.js";
import { type EVERYTHING, ofKind, REQUIRED, rendering } from "./chart-cases.js";
import { panelsOf, queryAt } from "./dashboards.js";
import { inRepository, readText } from "./files.js";
import { renderChart } from "./helm.js";
import { PROMTOOL, RECORDED } from "./rules.js";

const files = readdirSync(inRepository(FOLDER)).map((file): [string, string] => [file, readText(`${FOLDER}/${file}`)]);
const panels = files.flatMap(([file, text]) => panelsOf(text).map((panel) => ({ file, ...panel })));
const expressions = panels.flatMap(({ file, title, targets = [] }) =>
  targets.map(({ expr, legendFormat }) => ({ file, title, expr, legendFormat })),
);

test("the dashboards of the chart are those that test/dashboards makes", () => {
  expect(Object.fromEntries(files)).toEqual(Object.fromEntries(dashboardFiles()));
});

test("a dashboard has 6 to 12 panels in rows, each with a title, a sentence, a unit and queries", () => {
  expect(files.length).toBe(7);
  for (const [file, text] of files) {
    const all = panelsOf(text, true);
    const shown = all.filter(({ type }) => type !== "row");
    expect({ file, panels: shown.length >= 6 && shown.length <= 12, first: all[0]?.type }).toEqual({
      file,
      panels: true,
      first: "row",
    });
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
    expect(new Set(shown.map(({ title }) => title)).size).toBe(shown.length);
    for (const { title, type, description, fieldConfig, targets } of shown) {
      const colored = fieldConfig?.defaults.thresholds !== undefined;
      expect({ title, colored }).toEqual({ title, colored: type === "stat" });
      expect({ title }).toEqual({ title: expect.stringMatching(/^[A-Zg].*[^.]$/) });
      expect({ title, description }).toEqual({ title, description: expect.stringMatching(/^[A-Z0-9].*[^.]\.$/) });
      expect({ title, unit: fieldConfig?.defaults.unit }).toEqual({ title, unit: expect.stringMatching(/\w/) });
      expect({ title, targets: targets?.length }).not.toEqual({ title, targets: 0 });
    }
  }
});

test("no two panels of a dashboard overlap, and none is wider than the page", () => {
  for (const [file, text] of files) {
    const taken = new Set<string>();
    for (const { title, gridPos } of panelsOf(text, true)) {
      const { x, y, w, h } = gridPos;
      expect({ file, title, right: x + w <= 24 }).toEqual({ file, title, right: true });
      for (let column = x; column < x + w; column++)
        for (let line = y; line < y + h; line++) {
          expect({ file, title, free: !taken.has(`${column},${line}`) }).toEqual({ file, title, free: true });
          taken.add(`${column},${line}`);
        }
    }
  }
});

/** The labels of each series: those in docs/metrics.md and in the rules, and those that Prometheus sets as it scrapes. */
function labelsOfSeries(): ReadonlyMap<string, ReadonlySet<string>> {
  const scraped = ["namespace", "release", "role"];
  const listed = readMetricsList().flatMap(({ name, type, labels }): [string, readonly string[]][] => {
    if (type !== "histogram") return [[name, labels]];
    const ends: [string, string[]][] = [
      ["bucket", ["le"]],
      ["sum", []],
      ["count", []],
    ];
    return ends.map(([end, more]) => [`${name}_${end}`, [...labels, ...more]]);
  });
  const recorded = RECORDED.map(({ record, labels }): [string, string[]] => [record, Object.keys(labels ?? {})]);
  const own: [string, string[]] = ["ALERTS", ["alertname", "alertstate", "severity"]];
  return new Map([...listed, ...recorded, own].map(([name, labels]) => [name, new Set([...labels, ...scraped])]));
}

interface Used {
  readonly metric: string;
  readonly labels: readonly string[];
}

/** The series that an expression selects, and the labels that selectors, groupings and the legend name. */
function seriesIn(expr: string, legend = ""): Used[] {
  const grouped = [...expr.matchAll(/\b(?:by|on) \(([^)]*)\)/g)].flatMap(([, inner = ""]) => inner.split(/,\s*/));
  const named = [...legend.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = ""]) => label);
  return [...expr.matchAll(/\b(timeline[_:][\w:]+|ALERTS\b)(?:\{([^}]*)\})?/g)].map(
    ([, metric = "", selector = ""]) => {
      const selected = [...selector.matchAll(/(\w+)(?:=~|!~|!=|=)"/g)].map(([, label = ""]) => label);
      return { metric, labels: [...selected, ...grouped, ...named] };
    },
  );
}

/** Returns the faults of an expression: series that do not exist, and labels that these do not have. */
function unknownIn(expr: string, legend?: string): string[] {
  const known = labelsOfSeries();
  return seriesIn(expr, legend).flatMap(({ metric, labels }) => {
    const own = known.get(metric);
    if (own === undefined) return [metric];
    return labels.filter((label) => !own.has(label)).map((label) => `${metric}: ${label}`);
  });
}

test("every series of a panel is in docs/metrics.md or recorded, with the labels used", () => {
  expect(expressions.length).toBeGreaterThan(80);
  for (const { file, title, expr, legendFormat } of expressions) {
    const used = seriesIn(expr).length;
    expect({ file, title, used, unknown: unknownIn(expr, legendFormat) }).toEqual({
      file,
      title,
      used: expect.any(Number),
      unknown: [],
    });
    expect({ file, title, used: used > 0 }).toEqual({ file, title, used: true });
  }
});

test.each<[string, string, string, string[]]>([
  ["a renamed metric", "sum (timeline_old_name)", "", ["timeline_old_name"]],
  ["a histogram without its ending", "sum (timeline_rebuild_seconds)", "", ["timeline_rebuild_seconds"]],
  ["a label to group by", "sum by (user) (timeline_ready)", "", ["timeline_ready: user"]],
  ["a label of a selector", 'timeline_reads_total{role="api",code="OK"}', "", ["timeline_reads_total: code"]],
  ["a label of a legend", "timeline_reads_total", "{{outcome}} {{kind}}", ["timeline_reads_total: kind"]],
])("%s that does not exist is found", (_name, expr, legend, found) => {
  expect(unknownIn(expr, legend)).toEqual(found);
});

test("every series but the budgets is that of the chosen release", () => {
  for (const { file, title, expr } of expressions)
    for (const [series, metric] of expr.matchAll(/\b(timeline[_:][\w:]+|ALERTS\b)(?:\{[^}]*\})?/g))
      if (metric !== "timeline:slo_budget")
        expect({ file, title, series }).toEqual({
          file,
          title,
          series: expect.stringContaining('{namespace="$namespace",release="$release"'),
        });
});

const withPromtool = PROMTOOL ? test : test.skip;

withPromtool("promtool parses every expression", () => {
  const folder = mkdtempSync(join(tmpdir(), "avion-timeline-dashboards-"));
  try {
    const release = { namespace: "default", release: "avion" };
    const rules = expressions.map(({ expr }, at) => ({ record: `panel:${at}`, expr: queryAt(expr, release) }));
    const file = join(folder, "panels.yaml");
    writeFileSync(file, stringify({ groups: [{ name: "panels", rules }] }));
    const { status, stdout, stderr } = spawnSync(PROMTOOL as string, ["check", "rules", file], { encoding: "utf8" });
    expect([status, stdout + stderr]).toEqual([0, expect.stringContaining(`${rules.length} rules found`)]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

const BYTES_OF_A_CONFIG_MAP = 1024 * 1024;
/** `kubectl apply` keeps a copy of the object in an annotation, and annotations have at most this. */
const BYTES_OF_ANNOTATIONS = 256 * 1024;

rendering("the chart has a ConfigMap for each dashboard, with the label that the sidecar of Grafana looks for", () => {
  const maps = (values: typeof EVERYTHING) =>
    ofKind(renderChart(values), "ConfigMap").filter(({ metadata }) => metadata.labels["grafana_dashboard"] === "1");
  expect(maps(REQUIRED)).toEqual([]);
  const annotations = { grafana_folder: "Timeline" };
  const found = maps({
    ...REQUIRED,
    "metrics.dashboards.enabled": true,
    "metrics.dashboards.annotations": annotations,
  });
  expect(Object.fromEntries(found.flatMap(({ data }) => Object.entries(data ?? {})))).toEqual(
    Object.fromEntries(files.map(([file, text]) => [`avion-timeline-${file}`, text])),
  );
  expect(new Set(found.map(({ metadata }) => metadata.name)).size).toBe(files.length);
  for (const map of found) {
    expect(map.metadata.annotations).toEqual(annotations);
    const bytes = Buffer.byteLength(JSON.stringify(map));
    expect(bytes).toBeLessThan(Math.min(BYTES_OF_A_CONFIG_MAP, BYTES_OF_ANNOTATIONS));
  }
});
