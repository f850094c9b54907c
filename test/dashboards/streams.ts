import type { Board } from "./build.js";
import { maxOf, percentile, perSecond } from "./queries.js";

export const STREAMS: Board = {
  name: "streams",
  title: "event streams",
  description: "Server-Sent Events of the role gateway: open streams, what is sent on them, and what clients missed.",
  rows: [
    {
      title: "Streams",
      panels: [
        {
          title: "Open streams and their limit",
          description: "Open event streams of all gateways, and how many the gateways open at most.",
          unit: "count",
          queries: [
            ["sum (timeline_sse_connections)", "open"],
            ["sum (timeline_sse_max_connections)", "limit"],
          ],
        },
        {
          title: "Streams opened",
          description: "Event streams opened a second.",
          unit: "perSecond",
          queries: [perSecond("timeline_sse_opened_total")],
        },
        {
          title: "Streams closed, by reason",
          description: "A slow reader, or a process that ends, closes streams before their time.",
          unit: "perSecond",
          queries: [perSecond("timeline_sse_closed_total", "reason")],
        },
        {
          title: "Streams refused, by HTTP status",
          description: "An alert fires where 429 and 5xx are more than 5 % of the attempts.",
          unit: "perSecond",
          queries: [perSecond("timeline_sse_refused_total", "status")],
        },
      ],
    },
    {
      title: "Events",
      panels: [
        {
          title: "Events sent, by type",
          description: "Events sent on all streams a second.",
          unit: "perSecond",
          queries: [perSecond("timeline_sse_events_total", "type")],
        },
        {
          title: "Time from storing to sending",
          description:
            "The 99th percentile, by type; nats-server tells when it stored a notification from version 2.10 on.",
          unit: "seconds",
          queries: [percentile(99, "timeline_sse_stored_to_written_seconds", ["type"])],
        },
        {
          title: "Time from a drop's creation to its event",
          description: "The 99th percentile, by type; the objective for new drops is 2 s.",
          unit: "seconds",
          queries: [percentile(99, "timeline_sse_created_to_written_seconds", ["type"])],
        },
        {
          title: "Repeated notifications not sent again",
          description: "Notifications that a stream recognised as sent before.",
          unit: "perSecond",
          queries: [perSecond("timeline_sse_duplicates_total")],
        },
      ],
    },
    {
      title: "Resume",
      panels: [
        {
          title: "Resumed streams, by outcome",
          description: "A stream that resumes too late, or after a loss of notifications, gets a reset.",
          unit: "perSecond",
          queries: [perSecond("timeline_sse_resumes_total", "outcome")],
        },
        {
          title: "Resets, by reason",
          description: "After a reset the client reads its timeline again.",
          unit: "perSecond",
          queries: [perSecond("timeline_sse_resets_total", "reason")],
        },
        {
          title: "Registrations of listeners, by outcome",
          description: "Notifications are stored for registered listeners only.",
          unit: "perSecond",
          queries: [perSecond("timeline_sse_registrations_total", "outcome")],
        },
        {
          title: "Age of the key set",
          description:
            "Time since the server of the key set last answered; there is no value if a secret signs the tokens.",
          unit: "seconds",
          queries: [maxOf("timeline_jwks_age_seconds")],
        },
      ],
    },
  ],
};
