import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { basename } from "node:path";
import { expect, test } from "@jest/globals";
import { readMetricsList } from "../../support/metrics-list.js";
import { REQUIRED, rendering } from "./chart-cases.js";
import { inRepository, readText, readYaml } from "./files.js";
import { type Rendered, renderChart } from "./helm.js";
import { ALERTS, metricsIn, PROMTOOL, RECORDED, RULE_FILES, RULE_GROUPS, type RuleGroup } from "./rules.js";

const CASES = "test/unit/shipping/rules";
const withPromtool = PROMTOOL ? test : test.skip;
if (!PROMTOOL) console.warn("no promtool on PATH: the rules for Prometheus are not run");

interface RuleCase {
  readonly alert_rule_test?: readonly { readonly alertname: string; readonly exp_alerts: readonly unknown[] }[];
}

const promtool = (...args: string[]): { status: number | null; said: string } => {
  const { status, stdout, stderr } = spawnSync(PROMTOOL as string, args, { encoding: "utf8" });
  return { status, said: stdout + stderr };
};

test("every alert has a severity, a description with its value, and a distinct name", () => {
  expect(ALERTS.length).toBeGreaterThan(20);
  expect(new Set(ALERTS.map(({ alert }) => alert)).size).toBe(ALERTS.length);
  for (const { alert, labels, annotations } of ALERTS) {
    expect({ alert, severity: labels["severity"] }).toEqual({
      alert,
      severity: expect.stringMatching(/^(warning|critical)$/),
    });
    expect({ alert, summary: annotations["summary"] }).toEqual({ alert, summary: expect.stringMatching(/\w/) });
    expect({ alert, said: annotations["description"] }).toEqual({ alert, said: expect.stringMatching(/\$value.*\.$/) });
    expect({ alert, url: annotations["runbook_url"] }).toEqual({
      alert,
      url: `docs/operating.md#${alert.toLowerCase()}`,
    });
  }
});

test("docs/operating.md has a runbook of meaning, checks and actions for each alert, and no other", () => {
  const entries = readText("docs/operating.md").split(/^### /m).slice(1);
  const alerts = entries.filter((entry) => /^Timeline\w+\n/.test(entry));
  const titles = alerts.map((entry) => entry.slice(0, entry.indexOf("\n")));
  expect(titles.sort()).toEqual(ALERTS.map(({ alert }) => alert).sort());
  for (const entry of alerts) expect(entry).toMatch(/^\w+\n\n- \*\*Means:\*\* .+\n- \*\*Look:\*\* .+\n- \*\*Do:\*\* /s);
});

test("every metric a rule looks at is listed in docs/metrics.md, as Prometheus shows it, or recorded", () => {
  const shown = readMetricsList().flatMap(({ name, type }) =>
    type === "histogram" ? ["bucket", "sum", "count"].map((suffix) => `${name}_${suffix}`) : [name],
  );
  const known = new Set([...shown, ...RECORDED.map(({ record }) => record)]);
  for (const { alert, ...rule } of ALERTS)
    expect({ alert, metrics: metricsIn({ alert, ...rule }).length }).not.toEqual({ alert, metrics: 0 });
  for (const rule of [...ALERTS, ...RECORDED])
    expect({ rule, unknown: metricsIn(rule).filter((name) => !known.has(name)) }).toEqual({ rule, unknown: [] });
});

test("docs/slo.md states each objective with the budget that the rules record, and no other", () => {
  const rows = readText("docs/slo.md").matchAll(/^\| `([\w-]+)` \|.* ([\d.]+) % \|$/gm);
  const stated = [...rows].map(([, slo, percent]) => [slo, (100 - Number(percent)) / 100]);
  const budgets = RECORDED.filter(({ record }) => record === "timeline:slo_budget");
  const recorded = budgets.map(({ labels, expr }) => [labels?.["slo"], Number(expr.match(/vector\((.+)\)/)?.[1])]);
  expect(recorded.length).toBeGreaterThan(2);
  expect(stated.map(([slo, share]) => [slo, Number(Number(share).toFixed(6))])).toEqual(recorded);
});

test("every alert has a case in which it fires and one in which it does not", () => {
  const cases = readdirSync(inRepository(CASES)).flatMap((file) => {
    const { tests } = readYaml(`${CASES}/${file}`) as { tests: RuleCase[] };
    return tests.flatMap(({ alert_rule_test = [] }) => alert_rule_test);
  });
  const names = (fires: boolean): string[] =>
    [
      ...new Set(cases.filter(({ exp_alerts }) => exp_alerts.length > 0 === fires).map(({ alertname }) => alertname)),
    ].sort();
  expect(names(true)).toEqual(ALERTS.map(({ alert }) => alert).sort());
  expect(names(false)).toEqual(ALERTS.map(({ alert }) => alert).sort());
});

withPromtool.each(RULE_FILES)("promtool accepts %s", (file) => {
  expect(promtool("check", "rules", inRepository(file))).toMatchObject({ status: 0 });
});

withPromtool.each(RULE_FILES)("the alerts of %s fire when they should, and only then", (file) => {
  expect(promtool("test", "rules", inRepository(`${CASES}/${basename(file)}`))).toMatchObject({ status: 0 });
});

const rulesOf = (objects: Rendered[]): RuleGroup[] =>
  objects
    .filter(({ kind }) => kind === "PrometheusRule")
    .flatMap(({ spec }) => (spec as unknown as { groups: RuleGroup[] }).groups);

rendering("the chart contains the rule files unchanged if rules are enabled", () => {
  expect(rulesOf(renderChart(REQUIRED))).toEqual([]);
  const asked = { ...REQUIRED, "metrics.prometheusRule.enabled": true };
  expect(rulesOf(renderChart(asked))).toEqual(RULE_GROUPS);
  const labels = { release: "prometheus" };
  const [object] = renderChart({ ...asked, "metrics.prometheusRule.labels": labels }).filter(
    ({ kind }) => kind === "PrometheusRule",
  );
  expect(object?.metadata.labels).toMatchObject(labels);
});

rendering("alerts link to the published runbooks", () => {
  const base = "https://docs.example/operating.html";
  const groups = rulesOf(
    renderChart({ ...REQUIRED, "metrics.prometheusRule.enabled": true, "metrics.prometheusRule.runbookUrl": base }),
  );
  const urls = groups.flatMap(({ rules }) =>
    rules.flatMap((rule) => ("alert" in rule ? [rule.annotations["runbook_url"]] : [])),
  );
  expect(urls).toHaveLength(ALERTS.length);
  for (const url of urls) expect(url).toMatch(/^https:\/\/docs\.example\/operating\.html#timeline\w+$/);
});
