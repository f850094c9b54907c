import type { Board } from "./build.js";
import { FAILED, maxOf, percentile, perSecond, shareOf } from "./queries.js";

export const USERS_AND_POSTS: Board = {
  name: "users-and-posts",
  title: "users and posts",
  description: "Calls, changes and lists of the roles users and posts. Other upstreams have metrics of their own.",
  rows: [
    {
      title: "Calls",
      panels: [
        {
          title: "gRPC calls, by method",
          description: "Calls of all gRPC methods a second.",
          unit: "perSecond",
          queries: [perSecond("timeline_grpc_requests_total", "method")],
        },
        {
          title: "gRPC calls that fail through no fault of the caller",
          description: "The share of the calls of each method; an alert fires above 2 %, not for GetRemoteObject.",
          unit: "share",
          queries: [shareOf("timeline_grpc_requests_total", FAILED, ["method"])],
        },
        {
          title: "Duration of a call",
          description: "The 95th percentile, by method; the objective for CreateDrop is 50 ms.",
          unit: "seconds",
          queries: [percentile(95, "timeline_grpc_request_seconds", ["method"])],
        },
        {
          title: "Calls at a limit",
          description: "Calls that a limit refused, or could not count because Redis did not answer.",
          unit: "perSecond",
          queries: [perSecond("timeline_limited_total", "limit", "outcome")],
        },
      ],
    },
    {
      title: "Changes",
      panels: [
        {
          title: "Changes of drops and remote objects",
          description: "Changes by local users and by other servers, by kind.",
          unit: "perSecond",
          queries: [perSecond("timeline_posts_changes_total", "change")],
        },
        {
          title: "Reactions counted",
          description: "Likes and shares that were added to the counts of drops.",
          unit: "perSecond",
          queries: [perSecond("timeline_posts_reactions_counted_total")],
        },
        {
          title: "Follows and unfollows",
          description: "Follows and unfollows that changed an edge.",
          unit: "perSecond",
          queries: [perSecond("timeline_users_follows_total", "change")],
        },
        {
          title: "Blocks and mutes",
          description: "Changes of blocks and mutes, by kind.",
          unit: "perSecond",
          queries: [perSecond("timeline_users_relations_total", "change")],
        },
      ],
    },
    {
      title: "Lists and maintenance",
      panels: [
        {
          title: "Time until a list of followers shows a follow",
          description: "The 95th percentile, by lane; hot users have a lane of their own.",
          unit: "seconds",
          queries: [percentile(95, "timeline_users_edge_lag_seconds", ["lane"])],
        },
        {
          title: "Reads of lists, by source",
          description: "Reads from the cache, from the database, or uncached while Redis is unavailable.",
          unit: "perSecond",
          queries: [perSecond("timeline_users_reads_total", "from")],
        },
        {
          title: "Maintenance tasks that failed",
          description: "Failures of the maintenance of the role posts, by task.",
          unit: "perSecond",
          queries: [perSecond("timeline_posts_maintenance_failures_total", "task")],
        },
        {
          title: "Age of the oldest erasure",
          description: "The age of the oldest erasure of a user that is not completed.",
          unit: "seconds",
          queries: [maxOf("timeline_users_erasure_oldest_seconds")],
        },
      ],
    },
  ],
};
