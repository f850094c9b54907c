import { expect } from "@jest/globals";
import { becomes } from "../support/eventually.js";
import { openEvents } from "../support/sse.js";
import { testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";

type Sample = { readonly name: string; readonly labels: string; readonly value: number };

function parse(text: string): Sample[] {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return lines.map((line) => {
    const [, name = "", labels = "", value = ""] = /^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)$/.exec(line) ?? [];
    expect({ line, understood: name !== "" && !Number.isNaN(Number(value.replace("+Inf", "Infinity"))) }).toEqual({
      line,
      understood: true,
    });
    return { name, labels, value: Number(value) };
  });
}

/** Each kind of figure, and how its sample is told from the others. */
const FAMILIES: Readonly<Record<string, RegExp>> = {
  "gRPC requests by method and status": /^timeline_grpc_requests_total\{.*GetHomeTimeline.*OK/,
  "gRPC refusals": /^timeline_grpc_requests_total\{.*GetLocalTimeline.*INVALID_ARGUMENT/,
  "gRPC latency": /^timeline_grpc_request_seconds_bucket\{.*le="/,
  "calls to upstreams": /^timeline_upstream_call_seconds_count\{.*GetFollowersList/,
  "SSE connections": /^timeline_sse_connections\b/,
  "SSE events": /^timeline_sse_events_total\{.*new_drop/,
  "publishing to admission": /^timeline_published_to_admitted_seconds_count\b/,
  "creation to landing": /^timeline_created_to_landed_seconds_bucket\{.*le="2"/,
  "admission to landing": /^timeline_admitted_to_landed_seconds_bucket\{.*le="2"/,
  "Redis command time": /^timeline_redis_command_seconds_bucket\{.*le="/,
  rebuilds: /^timeline_rebuilds_total\b/,
  "cache hits": /^timeline_reads_total\{.*hit/,
  "rebuilt reads": /^timeline_reads_total\{.*rebuilt/,
  "queue depth": /^timeline_queue_depth\{/,
  "DLQ size": /^timeline_dlq_messages\b/,
  "events of the bridge": /^timeline_bridge_events_total\{.*drop_created/,
};

testWithStack(
  "metrics tell of reads, streams, lag, Redis, queues and dead letters, and name nobody",
  { timeoutMs: 60_000 },
  async (stack) => {
    const { world, publish, streams, reads, redis, service } = stack;
    const [author, reader, dropId] = ["author-in-person", "reader-in-person", "drop-in-person"];
    world.follow(reader, author);
    const drop = { drop_id: dropId, user_id: author, visibility: "public" as const, created_at: Date.now() };
    world.post(drop);
    const stream = await openEvents(service.httpUrl, reader);
    await publish(created(drop));
    await streams.settled(1);
    await redis.publish("drop_created", "nonsense");
    await stream.waitFor("new_drop");
    for (let times = 0; times < 2; times += 1) expect((await reads.home(reader)).drop_ids).toEqual([dropId]);
    await reads.local({ limit: 101 }).catch(() => undefined);

    await becomes(async () => {
      const response = await fetch(`${service.httpUrl}/metrics`);
      const text = await response.text();
      expect(response.headers.get("content-type")).toMatch(/^text\/plain|^application\/openmetrics-text/);
      const samples = parse(text).map(({ name, labels, value }) => ({ id: `${name}${labels}`, value }));
      const absent = Object.entries(FAMILIES).filter(([, pattern]) => !samples.some(({ id }) => pattern.test(id)));
      expect(absent.map(([name]) => name)).toEqual([]);
      expect(samples.find(({ id }) => /^timeline_sse_connections\b/.test(id))?.value).toBe(1);
      expect(samples.find(({ id }) => /^timeline_dlq_messages\b/.test(id))?.value).toBe(1);
      for (const name of [author, reader, dropId]) expect(text).not.toContain(name);
    });
    stream.close();
  },
);
