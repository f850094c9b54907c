import { type Board, ZERO } from "./build.js";
import { FAILED, maxOf, medianAndTail, perSecond, shareOf, sumOf } from "./queries.js";

const BUDGET = "on (slo) group_left () max by (slo) (timeline:slo_budget)";
const missed = (window: string): string =>
  `avg_over_time(timeline:slo_missed:rate5m[${window}]) / avg_over_time(timeline:slo_all:rate5m[${window}])`;

export const OVERVIEW: Board = {
  name: "overview",
  title: "overview",
  description:
    "How well the service meets its objectives. It needs the rules that the chart ships (metrics.prometheusRule).",
  rows: [
    {
      title: "Objectives (docs/slo.md)",
      panels: [
        {
          title: "Error budget of 30 days that is left",
          description:
            "The share of each budget that is left; below half, first deploy what removes the cause of the misses.",
          unit: "share",
          queries: [[`1 - ${missed("30d")} / ${BUDGET}`, "{{slo}}"]],
          newest: [
            [null, "red"],
            [0, "orange"],
            [0.5, "green"],
          ],
        },
        {
          title: "Speed at which error budgets are spent",
          description:
            "At 1 a budget lasts 30 days; alerts fire if it is above 14.4 over an hour, or above 6 over six hours.",
          unit: "count",
          queries: [[`${missed("1h")} / ${BUDGET}`, "{{slo}}"]],
        },
        {
          title: "Events that each objective judges",
          description: "Events a second that count for each objective, good and bad ones.",
          unit: "perSecond",
          queries: [["timeline:slo_all:rate5m", "{{slo}}"]],
        },
        {
          title: "Alerts that fire",
          description: "The number of alerts that fire now; docs/runbooks.md has a runbook for each.",
          unit: "count",
          queries: [['count(ALERTS{alertname=~"Timeline.*",alertstate="firing"}) or vector(0)', "firing"]],
          newest: ZERO,
        },
      ],
    },
    {
      title: "What users see",
      panels: [
        {
          title: "Pages by outcome",
          description: "Degraded pages may lack entries, and rebuilt ones are slow.",
          unit: "perSecond",
          queries: [perSecond("timeline_reads_total", "outcome")],
        },
        {
          title: "Duration of a timeline read",
          description: "The objectives are 50 ms for 95 % of the reads, and 200 ms for 99 %.",
          unit: "seconds",
          queries: medianAndTail("timeline_grpc_request_seconds", '{method=~"Get(Home|Local|Global)Timeline"}'),
        },
        {
          title: "Time from a drop's creation to the browser",
          description: "The objective is that 99 % of the new drops are written to an event stream within 2 s.",
          unit: "seconds",
          queries: medianAndTail("timeline_sse_created_to_written_seconds", '{type="new_drop"}'),
        },
        {
          title: "Open event streams",
          description: "The number of open event streams of all gateways.",
          unit: "count",
          queries: [sumOf("timeline_sse_connections")],
        },
      ],
    },
    {
      title: "Health",
      panels: [
        {
          title: "Processes that are not ready",
          description: "Running processes whose /readyz answers 503, by role.",
          unit: "count",
          queries: [["sum by (role) (1 - timeline_ready)", "{{role}}"]],
          newest: ZERO,
        },
        {
          title: "gRPC calls that fail through no fault of the caller",
          description: "An alert fires above 2 % for a method other than GetRemoteObject.",
          unit: "share",
          queries: [shareOf("timeline_grpc_requests_total", FAILED)],
        },
        {
          title: "Age of the oldest message of a consumer",
          description:
            "The age of the oldest message that each consumer has not acknowledged; `publications` looks at each after 3 s.",
          unit: "seconds",
          queries: [maxOf("timeline_queue_oldest_seconds", "consumer")],
        },
        {
          title: "Dead letters",
          description: "Messages in the stream DLQ that wait for an operator.",
          unit: "count",
          queries: [maxOf("timeline_dlq_messages")],
        },
      ],
    },
  ],
};
