import {
  ReduceDataOptionsBuilder,
  TooltipDisplayMode,
  VizLegendOptionsBuilder,
  VizTooltipOptionsBuilder,
} from "@grafana/grafana-foundation-sdk/common";
import {
  type Dashboard,
  DashboardBuilder,
  DashboardCursorSync,
  DatasourceVariableBuilder,
  FieldColorBuilder,
  FieldColorModeId,
  QueryVariableBuilder,
  RowBuilder,
  ThresholdsConfigBuilder,
  ThresholdsMode,
  VariableRefresh,
  VariableSort,
} from "@grafana/grafana-foundation-sdk/dashboard";
import { DataqueryBuilder } from "@grafana/grafana-foundation-sdk/prometheus";
import { PanelBuilder as StatBuilder } from "@grafana/grafana-foundation-sdk/stat";
import { PanelBuilder as TimeSeriesBuilder } from "@grafana/grafana-foundation-sdk/timeseries";
import { BytesIEC, OpsPerSecond, PercentUnit, Seconds, Short } from "@grafana/grafana-foundation-sdk/units";

const UNITS = { bytes: BytesIEC, count: Short, perSecond: OpsPerSecond, seconds: Seconds, share: PercentUnit } as const;

/** A query in PromQL, without the labels of the release, and how its series are named. */
export type Query = readonly [expr: string, legend: string];

export type Step = readonly [from: number | null, color: "green" | "orange" | "red"];

/** Colors of a value that should be 0, and of one that should be 1. */
export const ZERO: readonly Step[] = [
  [null, "green"],
  [1, "red"],
];
export const ONE: readonly Step[] = [
  [null, "red"],
  [1, "green"],
];

export interface Panel {
  readonly title: string;
  readonly description: string;
  readonly unit: keyof typeof UNITS;
  readonly queries: readonly Query[];
  /** The panel then shows the newest values as numbers, each in the color of the last step that is not above it. */
  readonly newest?: readonly Step[];
}

export interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

export interface Board {
  /** The name of its file, and the end of its uid. */
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly rows: readonly Row[];
}

/** Rules that Prometheus loads from files record the budgets without a release. */
const SHARED = "timeline:slo_budget";
// biome-ignore lint/suspicious/noTemplateCurlyInString: Grafana fills it in.
const DATASOURCE = { type: "prometheus", uid: "${datasource}" };
const OWN = `namespace="$namespace",release="$release"`;
const [COLUMNS, PANEL_HEIGHT] = [24, 8];

/** Adds the chosen release to each selector, as the chart does in the rules. */
const ofRelease = (expr: string): string =>
  expr.replace(/\b((?:timeline[_:]|ALERTS\b)[\w:]*)(\{)?/g, (_all, metric: string, brace?: string) => {
    if (metric === SHARED) return metric + (brace ?? "");
    return brace === undefined ? `${metric}{${OWN}}` : `${metric}{${OWN},`;
  });

const target = ([expr, legend]: Query, newest: boolean): DataqueryBuilder => {
  const query = new DataqueryBuilder().datasource(DATASOURCE).expr(ofRelease(expr)).legendFormat(legend);
  return newest ? query.instant() : query.range();
};

/** The library hides legends by default. */
const lines = () =>
  new TimeSeriesBuilder()
    .fillOpacity(10)
    .legend(new VizLegendOptionsBuilder().showLegend(true))
    .tooltip(new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi));
const numbers = (steps: readonly Step[]) =>
  new StatBuilder()
    .reduceOptions(new ReduceDataOptionsBuilder().calcs(["lastNotNull"]))
    .colorScheme(new FieldColorBuilder().mode(FieldColorModeId.Thresholds))
    .thresholds(
      new ThresholdsConfigBuilder()
        .mode(ThresholdsMode.Absolute)
        .steps(steps.map(([value, color]) => ({ value, color }))),
    );

function panelOf({ title, description, unit, queries, newest }: Panel, width: number) {
  const targets = queries.map((query, at) => target(query, newest !== undefined).refId(String.fromCharCode(65 + at)));
  const panel = newest ? numbers(newest) : lines();
  panel.title(title).description(description).datasource(DATASOURCE).targets(targets);
  return panel.unit(UNITS[unit]).height(PANEL_HEIGHT).span(width);
}

const choice = (name: string, label: string, query: string): QueryVariableBuilder =>
  new QueryVariableBuilder(name)
    .label(label)
    .datasource(DATASOURCE)
    .query(query)
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .sort(VariableSort.AlphabeticalAsc);

/** Builds the JSON model of a dashboard. Panels of a row share its width, four at most in a line. */
export function dashboardOf({ name, title, description, rows }: Board): Dashboard {
  const dashboard = new DashboardBuilder(`Timeline: ${title}`)
    .uid(`avion-timeline-${name}`)
    .description(description)
    .tags(["avion-timeline"])
    .time({ from: "now-3h", to: "now" })
    .refresh("1m")
    .tooltip(DashboardCursorSync.Crosshair)
    .withVariable(new DatasourceVariableBuilder("datasource").label("Prometheus").type("prometheus"))
    .withVariable(choice("namespace", "Namespace", "label_values(timeline_ready, namespace)"))
    .withVariable(choice("release", "Release", 'label_values(timeline_ready{namespace="$namespace"}, release)'));
  for (const row of rows) {
    dashboard.withRow(new RowBuilder(row.title));
    for (const panel of row.panels) dashboard.withPanel(panelOf(panel, COLUMNS / Math.min(row.panels.length, 4)));
  }
  const built = dashboard.build();
  built.panels?.forEach((panel, at) => {
    panel.id = at + 1;
  });
  return built;
}
