import type { Board } from "./build.js";
import { maxOf, medianAndTail, percentile, perSecond } from "./queries.js";

export const PIPELINE: Board = {
  name: "pipeline",
  title: "from publication to browser",
  description:
    "The path of an event from an outbox, or from Redis Pub/Sub over a bridge, through the log and the homes to the event streams.",
  rows: [
    {
      title: "Into the log",
      panels: [
        {
          title: "Payloads that the bridge received",
          description: "Payloads from Redis Pub/Sub; two bridges receive each of them, and the log admits it once.",
          unit: "perSecond",
          queries: [perSecond("timeline_bridge_events_total", "outcome")],
        },
        {
          title: "Time until an event has left its outbox",
          description: "The objective is that 99 % of the events have their PubAck within 200 ms of their writing.",
          unit: "seconds",
          queries: [percentile(99, "timeline_outbox_lag_seconds", ["source"])],
        },
        {
          title: "Time until a bridge has put a drop into the log",
          description:
            "From the creation of a drop that was published on Redis Pub/Sub until the bridge has its PubAck.",
          unit: "seconds",
          queries: medianAndTail("timeline_published_to_admitted_seconds"),
        },
        {
          title: "Events that wait in outboxes",
          description: "Unpublished events, by outbox.",
          unit: "count",
          queries: [maxOf("timeline_outbox_waiting", "source")],
        },
      ],
    },
    {
      title: "Into the homes",
      panels: [
        {
          title: "Messages that consumers handled",
          description: "Messages by outcome; a message with the outcome retry is handled again later.",
          unit: "perSecond",
          queries: [perSecond("timeline_deliveries_total", "outcome")],
        },
        {
          title: "Messages that wait for a consumer",
          description: "Messages that are not yet delivered to each consumer.",
          unit: "count",
          queries: [maxOf("timeline_queue_depth", "consumer")],
        },
        {
          title: "Recipients of fan-outs",
          description: "The number of homes that fan-outs were for, by event.",
          unit: "perSecond",
          queries: [perSecond("timeline_fanout_recipients_total", "event")],
        },
        {
          title: "Time to handle a batch",
          description: "The 99th percentile of the time that each consumer needs for a message or a batch.",
          unit: "seconds",
          queries: [percentile(99, "timeline_handle_seconds", ["consumer"])],
        },
      ],
    },
    {
      title: "To the browser",
      panels: [
        {
          title: "Time from creation to the last timeline",
          description: "The objective is that 99 % of the drops are in their last timeline within 2 s.",
          unit: "seconds",
          queries: medianAndTail("timeline_created_to_landed_seconds", '{event="drop_created"}'),
        },
        {
          title: "Time from admission to the last timeline",
          description: "The 99th percentile of the time that fan-out needs, by event.",
          unit: "seconds",
          queries: [percentile(99, "timeline_admitted_to_landed_seconds", ["event"])],
        },
        {
          title: "Notifications stored",
          description: "Notifications that fan-out stores for users with an event stream.",
          unit: "perSecond",
          queries: [perSecond("timeline_notifications_total")],
        },
        {
          title: "Time from creation to the event stream",
          description: "The 99th percentile of a drop's age when its event is sent, by type.",
          unit: "seconds",
          queries: [percentile(99, "timeline_sse_created_to_written_seconds", ["type"])],
        },
      ],
    },
  ],
};
