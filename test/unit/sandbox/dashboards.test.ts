import { expect, test } from "@jest/globals";
import { describeDashboards, startDashboards } from "../../../src/sandbox/dashboards.js";

const NOTHING = "";

test("where Prometheus and Grafana are not installed, nothing is started, and one line says so", async () => {
  // It touches no sandbox then.
  const dashboards = await startDashboards({} as never, { PATH: NOTHING });
  expect(dashboards).toEqual({ missing: ["prometheus", "grafana"] });
  expect(describeDashboards(dashboards)).toBe(
    "  Not installed, and needed for the dashboards: prometheus and grafana\n",
  );
});

test("servers that run are named by their addresses", () => {
  const said = describeDashboards({ prometheusUrl: "http://a:1", grafanaUrl: "http://b:2", missing: [] });
  expect(said.split("\n").map((line) => line.trim().split(/\s+/).slice(0, 2))).toEqual([
    ["Metrics", "http://a:1"],
    ["Boards", "http://b:2/dashboards"],
    [""],
  ]);
});
