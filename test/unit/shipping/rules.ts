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

export interface RuleGroup {
  readonly name: string;
  readonly rules: readonly Alert[];
}

const FOLDER = "charts/avion-timeline/rules";

export const RULE_FILES = readdirSync(inRepository(FOLDER))
  .sort()
  .map((file) => `${FOLDER}/${file}`);

export const RULE_GROUPS = RULE_FILES.flatMap((file) => (readYaml(file) as { groups: RuleGroup[] }).groups);

export const ALERTS = RULE_GROUPS.flatMap(({ rules }) => rules);

/** Names of the metrics an alert looks at. */
export const metricsIn = ({ expr }: Alert): string[] => [...new Set(expr.match(/\btimeline_\w+/g) ?? [])];

/** `promtool` of PATH; undefined where there is none. */
export const PROMTOOL = spawnSync("promtool", ["--version"]).status === 0 ? "promtool" : undefined;
