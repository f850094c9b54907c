import { type Board, ONE } from "./build.js";
import { maxOf, percentile, perSecond } from "./queries.js";

export const BROKERS: Board = {
  name: "brokers",
  title: "NATS and Redis",
  description: "Streams and consumers of NATS and the masters of Redis, as the processes of the service sample them.",
  rows: [
    {
      title: "NATS",
      panels: [
        {
          title: "Fullness of streams",
          description: "The share of max_bytes that each stream holds; an alert fires above 80 %.",
          unit: "share",
          queries: [["max by (stream) (timeline_stream_bytes / timeline_stream_max_bytes)", "{{stream}}"]],
        },
        {
          title: "Messages in streams",
          description: "The number of messages that each stream holds.",
          unit: "count",
          queries: [maxOf("timeline_stream_messages", "stream")],
        },
        {
          title: "Messages under way",
          description: "Messages that were delivered to each consumer and are not acknowledged.",
          unit: "count",
          queries: [maxOf("timeline_queue_unacked", "consumer")],
        },
        {
          title: "Dead letters and messages given up",
          description: "Messages in the DLQ, and messages that NATS gave up delivering.",
          unit: "count",
          queries: [
            ["max (timeline_dlq_messages)", "dead letters"],
            ["max (timeline_advisories)", "given up"],
          ],
        },
      ],
    },
    {
      title: "Redis",
      panels: [
        {
          title: "Memory in use",
          description:
            "The share of maxmemory, or else of the machine's memory, that each master uses; an alert fires above 85 %.",
          unit: "share",
          queries: [
            [
              "max by (node) (timeline_redis_used_memory_bytes / (timeline_redis_maxmemory_bytes > 0 or timeline_redis_system_memory_bytes))",
              "{{node}}",
            ],
          ],
        },
        {
          title: "Duration of a command",
          description: "The 99th percentile of the time from sending a command until its answer, by command.",
          unit: "seconds",
          queries: [percentile(99, "timeline_redis_command_seconds", ["command"])],
        },
        {
          title: "Write calls that wait",
          description: "Writes that wait for their turn, by lane; large fan-outs yield to small drops.",
          unit: "count",
          queries: [["sum by (lane) (timeline_redis_writes_waiting)", "{{lane}}"]],
        },
        {
          title: "Keys expired and evicted",
          description: "Keys that expired or were evicted in five minutes; a Redis of this service must evict none.",
          unit: "count",
          queries: [
            ["max by (node) (increase(timeline_redis_expired_keys[5m]))", "expired {{node}}"],
            ["max by (node) (increase(timeline_redis_evicted_keys[5m]))", "evicted {{node}}"],
          ],
        },
      ],
    },
    {
      title: "Health",
      panels: [
        {
          title: "Redis masters that answer",
          description: "1 while at least one process gets an answer from the master.",
          unit: "count",
          queries: [maxOf("timeline_redis_up", "node")],
          newest: ONE,
        },
        {
          title: "Persistence of Redis",
          description: "0 where the last snapshot or append-only file of a master failed.",
          unit: "count",
          queries: [["min by (node, kind) (timeline_redis_persistence_ok)", "{{node}} {{kind}}"]],
          newest: ONE,
        },
        {
          title: "Samples that succeed",
          description: "0 where no process can take the sample; its gauges are NaN then.",
          unit: "count",
          queries: [maxOf("timeline_sample_up", "sample")],
          newest: ONE,
        },
        {
          title: "Losses and their repair",
          description: "Losses of Redis or of the log that were detected, and events that were applied again.",
          unit: "perSecond",
          queries: [
            [perSecond("timeline_redis_losses_total")[0], "losses of Redis"],
            [perSecond("timeline_log_losses_total")[0], "losses of the log"],
            [perSecond("timeline_replayed_events_total")[0], "events replayed"],
          ],
        },
      ],
    },
  ],
};
