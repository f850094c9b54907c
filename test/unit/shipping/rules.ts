import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { inRepository, readYaml } from "./files.js";

export interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** A recording rule. */
export interface Recorded {
  readonly record: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly expr: string;
}

export interface RuleGroup {
  readonly name: string;
  readonly rules: readonly (Alert | Recorded)[];
}

const FOLDER = "charts/avion-timeline/rules";

export const RULE_FILES = readdirSync(inRepository(FOLDER))
  .sort()
  .map((file) => `${FOLDER}/${file}`);

export const RULE_GROUPS = RULE_FILES.flatMap((file) => (readYaml(file) as { groups: RuleGroup[] }).groups);

const RULES = RULE_GROUPS.flatMap(({ rules }) => rules);

export const ALERTS = RULES.filter((rule): rule is Alert => "alert" in rule);

export const RECORDED = RULES.filter((rule): rule is Recorded => "record" in rule);

/** Names of the metrics and of the recorded series a rule looks at. */
export const metricsIn = ({ expr }: Alert | Recorded): string[] => [
  ...new Set(expr.match(/\btimeline(_|:slo_)[\w:]+/g) ?? []),
];

const installed = (program: string): string | undefined =>
  spawnSync(program, ["--version"]).status === 0 ? program : undefined;

/** Programs in PATH; undefined if they are not installed. */
export const [PROMTOOL, PROMETHEUS] = ["promtool", "prometheus"].map(installed);
