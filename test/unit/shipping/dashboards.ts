/** A panel of a dashboard's JSON model. */
export interface PanelModel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly gridPos: Readonly<Record<"x" | "y" | "w" | "h", number>>;
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string; readonly thresholds?: object } };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

/** The panels of a dashboard's file; rows are panels, too, and left out unless asked for. */
export function panelsOf(text: string, withRows = false): PanelModel[] {
  const { panels } = JSON.parse(text) as { panels: PanelModel[] };
  return panels.filter(({ type }) => withRows || type !== "row");
}

/** The expression as Grafana sends it for a release. */
export const queryAt = (expr: string, { namespace, release }: { namespace: string; release: string }): string =>
  expr.replaceAll("$namespace", namespace).replaceAll("$release", release).replaceAll("$__rate_interval", "1m");
