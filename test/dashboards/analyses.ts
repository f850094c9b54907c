import type { Board } from "./build.js";
import { maxOf, medianAndTail, percentile, perSecond } from "./queries.js";

export const ANALYSES: Board = {
  name: "analyses",
  title: "analyses and rewards",
  description: "Analyses from the accepted request to the reward.",
  rows: [
    {
      title: "Requests",
      panels: [
        {
          title: "Analyses accepted, by user tier",
          description: "Analyses accepted with 202.",
          unit: "perSecond",
          queries: [perSecond("timeline_analysis_accepted_total", "tier")],
        },
        {
          title: "Requests refused, by HTTP status",
          description: "Requests about analyses and rewards that were refused.",
          unit: "perSecond",
          queries: [perSecond("timeline_analysis_refused_total", "status")],
        },
        {
          title: "Time until a request is answered",
          description: "The 95th percentile, by HTTP status; the objective is 200 ms.",
          unit: "seconds",
          queries: [percentile(95, "timeline_analysis_request_seconds", ["status"])],
        },
        {
          title: "Messages that wait for a worker",
          description: "Messages of analyses and rewards that are not yet delivered.",
          unit: "count",
          queries: [maxOf('timeline_queue_depth{consumer=~"analysis|rewards"}', "consumer")],
        },
      ],
    },
    {
      title: "Work",
      panels: [
        {
          title: "Analyses finished, by outcome",
          description: "Analyses completed, or failed for good; an alert fires where more than 10 % fail.",
          unit: "perSecond",
          queries: [perSecond("timeline_analyses_finished_total", "outcome")],
        },
        {
          title: "Failed attempts, by error code",
          description: "An analysis has three attempts.",
          unit: "perSecond",
          queries: [perSecond("timeline_analysis_attempts_failed_total", "error_code")],
        },
        {
          title: "Time from the request to the result",
          description: "From the 202 of an analysis to its completion.",
          unit: "seconds",
          queries: medianAndTail("timeline_analysis_seconds"),
        },
        {
          title: "Reads of the cache of results",
          description: "Hits and misses when a worker looks for a result in the cache.",
          unit: "perSecond",
          queries: [perSecond("timeline_analysis_cache_total", "result")],
        },
      ],
    },
    {
      title: "AT Protocol and rewards",
      panels: [
        {
          title: "Duration of a call to the AT Protocol",
          description: "The 95th percentile, by HTTP status or reason of the failure.",
          unit: "seconds",
          queries: [percentile(95, "timeline_analysis_source_call_seconds", ["result"])],
        },
        {
          title: "Calls that may be made now",
          description: "Calls to the AT Protocol that all processes together may make now.",
          unit: "count",
          queries: [maxOf("timeline_analysis_source_tokens")],
        },
        {
          title: "Time from an analysis to its reward",
          description: "From the completion of an analysis to its reward.",
          unit: "seconds",
          queries: medianAndTail("timeline_rewards_lag_seconds"),
        },
        {
          title: "Users with a wrong total",
          description: "Users whose XP differs from the sum of their transactions; an alert fires above 0.",
          unit: "count",
          queries: [maxOf("timeline_rewards_drifted_users")],
        },
      ],
    },
  ],
};
