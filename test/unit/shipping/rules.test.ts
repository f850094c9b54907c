import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { expect, test } from "@jest/globals";
import { stringify } from "yaml";
import { readMetricsList } from "../../support/metrics-list.js";
import { EVERYTHING, ofKind, REQUIRED, rendering } from "./chart-cases.js";
import { inRepository, readText, readYaml } from "./files.js";
import { HELM, RELEASE, type Rendered, renderChart } from "./helm.js";
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
      url: `docs/runbooks.md#${alert.toLowerCase()}`,
    });
  }
});

test("docs/runbooks.md has a runbook of meaning, checks and actions for each alert, and no other", () => {
  const entries = readText("docs/runbooks.md").split(/^## /m).slice(1);
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

// Prometheus 3 stores the bucket le="2" as le="2.0".
test("a rule that selects a bucket of whole seconds finds it under both of its names", () => {
  const selected = [...ALERTS, ...RECORDED].flatMap(({ expr }) => [...expr.matchAll(/\ble(=~?)"([^"]+)"/g)]);
  const whole = selected.filter(([, , bound]) => /^\d+(\D|$)/.test(bound as string) && !/^0\./.test(bound as string));
  expect(whole).toHaveLength(3);
  for (const [, operator, bound] of whole) {
    const matcher = new RegExp(`^(${(bound as string).replaceAll("\\\\", "\\")})$`);
    const seconds = /^\d+/.exec(bound as string)?.[0];
    const names = ["", ".0", ".5", "0", "x0"].map((end) => matcher.test(`${seconds}${end}`));
    expect([operator, ...names]).toEqual(["=~", true, true, false, false, false]);
  }
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

const WITH_RULES = { ...REQUIRED, "metrics.prometheusRule.enabled": true };
const nameOf = (rule: RuleGroup["rules"][number]): string => ("alert" in rule ? rule.alert : rule.record);

rendering("the chart contains every rule, for the series of its own release alone", () => {
  expect(rulesOf(renderChart(REQUIRED))).toEqual([]);
  const groups = rulesOf(renderChart(WITH_RULES));
  const own = `{namespace="${RELEASE.namespace}",release="${RELEASE.name}"`;
  expect(groups.map(({ name }) => name)).toEqual(RULE_GROUPS.map(({ name }) => name));
  for (const [at, { rules }] of groups.entries()) {
    expect(rules.map(nameOf)).toEqual(RULE_GROUPS[at]?.rules.map(nameOf));
    for (const rule of rules) {
      const series = rule.expr.match(/\btimeline[_:][\w:]+./g) ?? [];
      expect([nameOf(rule), series.every((one) => one.endsWith("{"))]).toEqual([nameOf(rule), true]);
      expect([nameOf(rule), rule.expr.split(own).length - 1]).toEqual([nameOf(rule), series.length]);
      expect(rule.labels).toMatchObject({ namespace: RELEASE.namespace, release: RELEASE.name });
    }
  }
  const labels = { release: "prometheus" };
  const [object] = ofKind(renderChart({ ...WITH_RULES, "metrics.prometheusRule.labels": labels }), "PrometheusRule");
  expect(object?.metadata.labels).toMatchObject(labels);
});

const withBoth = HELM && PROMTOOL ? test : test.skip;

withBoth("of two releases in one Prometheus, neither scales or hides the other", () => {
  const folder = mkdtempSync(join(tmpdir(), "avion-timeline-rules-"));
  try {
    const releases = ["production", "staging"];
    for (const namespace of releases)
      writeFileSync(
        join(folder, `${namespace}.yaml`),
        stringify({ groups: rulesOf(renderChart(WITH_RULES, { name: "avion", namespace })) }),
      );
    const of = (namespace: string, labels: string): string => `{namespace="${namespace}",release="avion",${labels}}`;
    const roles = ["api", "bridge", "fanout", "gateway"];
    const series = (name: string, values: string) => ({ series: name, values });
    const waits = [
      series(`timeline_queue_depth${of("staging", 'consumer="planner",role="fanout"')}`, "50000x20"),
      series(`timeline_queue_unacked${of("staging", 'consumer="planner",role="fanout"')}`, "0x20"),
      ...roles.map((role) => series(`timeline_ready${of("staging", `role="${role}"`)}`, "1x20")),
    ];
    const absent = roles.map((role) => ({
      exp_labels: { namespace: "production", release: "avion", role, severity: "critical" },
      exp_annotations: {
        summary: `Prometheus sees no process of the timeline service with the role ${role}`,
        description: `For five minutes no process of the timeline service with the role ${role} was scraped (absent: 1).`,
        runbook_url: "docs/runbooks.md#timelineabsent",
      },
    }));
    const load = (namespace: string, found: object[]) => ({
      expr: queryOf("fanout", namespace),
      eval_time: "10m",
      exp_samples: found,
    });
    const cases = {
      rule_files: releases.map((namespace) => `${namespace}.yaml`),
      tests: [
        {
          interval: "1m",
          input_series: waits,
          alert_rule_test: [{ eval_time: "10m", alertname: "TimelineAbsent", exp_alerts: absent }],
          promql_expr_test: [
            load("production", []),
            load("staging", [{ labels: `timeline_scaling_load${of("staging", 'role="fanout"')}`, value: 50_000 }]),
          ],
        },
      ],
    };
    writeFileSync(join(folder, "cases.yaml"), stringify(cases));
    const { status, said } = promtool("test", "rules", join(folder, "cases.yaml"));
    expect([status, said]).toEqual([0, expect.stringContaining("SUCCESS")]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

/** The query of the role's autoscaler. */
function queryOf(of: string, namespace: string): string {
  const keda = { "autoscaling.signals": "keda", "autoscaling.prometheusUrl": "http://prometheus:9090" };
  const objects = renderChart({ ...EVERYTHING, ...keda }, { name: "avion", namespace });
  const found = ofKind(objects, "ScaledObject").find(
    ({ metadata }) => metadata.labels["app.kubernetes.io/component"] === of,
  );
  const [, prometheus] = (found as Rendered).spec.triggers as { metadata: { query: string } }[];
  return prometheus?.metadata.query as string;
}

rendering("TimelineAbsent asks for each role that is deployed, and for no other", () => {
  const absent = rulesOf(renderChart({ ...WITH_RULES, "roles.bridge.enabled": false }))
    .flatMap(({ rules }) => rules)
    .find((rule) => nameOf(rule) === "TimelineAbsent");
  const roles = [...(absent?.expr.matchAll(/absent\(timeline_ready\{[^}]*role="(\w+)"\}\)/g) ?? [])];
  expect(roles.map(([, role]) => role)).toEqual(["api", "fanout", "gateway"]);
});

rendering("alerts link to the published runbooks", () => {
  const base = "https://docs.example/runbooks.html";
  const groups = rulesOf(
    renderChart({ ...REQUIRED, "metrics.prometheusRule.enabled": true, "metrics.prometheusRule.runbookUrl": base }),
  );
  const urls = groups.flatMap(({ rules }) =>
    rules.flatMap((rule) => ("alert" in rule ? [rule.annotations["runbook_url"]] : [])),
  );
  expect(urls).toHaveLength(ALERTS.length);
  for (const url of urls) expect(url).toMatch(/^https:\/\/docs\.example\/runbooks\.html#timeline\w+$/);
});
