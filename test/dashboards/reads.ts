import type { Board } from "./build.js";
import { maxOf, medianAndTail, percentile, perSecond, shareOf, sumOf } from "./queries.js";

const READS = '{method=~"Get(Home|Local|Global)Timeline"}';

export const READ: Board = {
  name: "reads",
  title: "reads",
  description: "Pages of timelines: how many, how fast, how complete, and what they cost Redis and the upstreams.",
  rows: [
    {
      title: "Pages",
      panels: [
        {
          title: "Pages by timeline and outcome",
          description: "Pages that were complete, rebuilt first, or degraded.",
          unit: "perSecond",
          queries: [perSecond("timeline_reads_total", "timeline", "outcome")],
        },
        {
          title: "Degraded pages",
          description: "The share of the pages that may lack entries; an alert fires above 5 % for a timeline.",
          unit: "share",
          queries: [shareOf("timeline_reads_total", '{outcome="degraded"}', ["timeline"])],
        },
        {
          title: "Time of a gRPC read, by timeline",
          description: "The 95th percentile of the duration; the objective is 50 ms.",
          unit: "seconds",
          queries: [percentile(95, "timeline_grpc_request_seconds", ["method"], READS)],
        },
        {
          title: "Pages over HTTP",
          description: "Pages that gateways served, and requests that they refused, by HTTP status.",
          unit: "perSecond",
          queries: [
            perSecond("timeline_http_pages_total", "timeline"),
            perSecond("timeline_http_pages_refused_total", "status"),
          ],
        },
      ],
    },
    {
      title: "Cache of the role api",
      panels: [
        {
          title: "Answers found in the cache",
          description: "The share of the answers of Redis that api found in its cache.",
          unit: "share",
          queries: [
            [
              'sum (rate(timeline_read_cache_total{event="hit"}[$__rate_interval])) / sum (rate(timeline_read_cache_total{event=~"hit|miss"}[$__rate_interval]))',
              "hits",
            ],
          ],
        },
        {
          title: "Answers removed from the cache",
          description: "Cached answers that were removed, by reason.",
          unit: "perSecond",
          queries: [perSecond('timeline_read_cache_total{event!~"hit|miss"}', "event")],
        },
        {
          title: "Memory of cached answers",
          description: "Memory that all processes together use for cached answers.",
          unit: "bytes",
          queries: [sumOf("timeline_read_cache_bytes")],
        },
        {
          title: "Tombstones copied to a process",
          description:
            "The largest number of tombstones that a process has copied; at 0 in a Redis Cluster it asks Redis for each page.",
          unit: "count",
          queries: [maxOf("timeline_tombstones_copied")],
        },
      ],
    },
    {
      title: "Rebuilds and upstreams",
      panels: [
        {
          title: "Rebuilds of timelines",
          description: "Timelines that were built again, by outcome.",
          unit: "perSecond",
          queries: [perSecond("timeline_rebuilds_total", "outcome")],
        },
        {
          title: "Duration of a rebuild",
          description: "The duration of rebuilds that succeeded.",
          unit: "seconds",
          queries: medianAndTail("timeline_rebuild_seconds"),
        },
        {
          title: "Calls to the upstreams",
          description: "Calls to UserService and PostService, by their result.",
          unit: "perSecond",
          queries: [perSecond("timeline_upstream_call_seconds_count", "result")],
        },
        {
          title: "Duration of a call to an upstream",
          description: "The 95th percentile, by method.",
          unit: "seconds",
          queries: [percentile(95, "timeline_upstream_call_seconds", ["method"])],
        },
      ],
    },
  ],
};
