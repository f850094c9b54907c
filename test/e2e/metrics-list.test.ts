import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { HOUR } from "../../src/kernel/time.js";
import { post } from "../support/analysis-http.js";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { makeCertificates } from "../support/certificates.js";
import { becomes } from "../support/eventually.js";
import { readMetricsList } from "../support/metrics-list.js";
import { openReader } from "../support/reader.js";
import { type Sample, samplesOf } from "../support/scrape.js";
import type { Service } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { homeKey } from "../support/timeline-keys.js";
import { ALERTS, metricsIn, RECORDED } from "../unit/shipping/rules.js";

/** Starts a process with every role, lets one drop and one follow pass through it, and yields its metrics. */
async function busyProcess(stack: Stack): Promise<{ scrape: () => Promise<Sample[]> }> {
  const folder = await temporaryFolder("metrics");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
  const service = await stack.start({
    roles: "users,posts,bridge,fanout,api,gateway,analysis,rewards,notifications",
    env: { ...own, TIMELINE_DATA_DIR: join(folder, "data"), TIMELINE_AUDIT_INTERVAL_MS: "500" },
  });
  const upstreams = {
    TIMELINE_USER_SERVICE_ADDR: service.grpcAddress,
    TIMELINE_POST_SERVICE_ADDR: service.grpcAddress,
  };
  const [api, reader] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
  stack.defer(() => api.close());
  stack.defer(() => reader.close());
  await api.follow({ follower_id: "reader", following_id: "author" });
  const stream = await openEvents(service.httpUrl, "reader");
  stack.defer(() => stream.close());
  const { drop_id } = await api.post("author");
  await stream.waitFor("new_drop");
  await becomes(async () => expect((await reader.home("reader")).drop_ids).toEqual([drop_id]));
  // An audit repairs the home.
  await stack.redis.zadd(homeKey("reader"), Date.now() - HOUR, "unexpected");
  await fetch(`${service.httpUrl}/events/timeline/home`);
  await post(service.httpUrl, "reader", { body: { did: "author", type: "flow" } });
  // Certificates are measured by a process that has some.
  const certificates = makeCertificates();
  stack.defer(async () => certificates.remove());
  const secure = { TIMELINE_GRPC_TLS: certificates.good.folder };
  const services = [service, await stack.start({ roles: "api", env: { ...secure, ...upstreams } })];
  const scrapeOf = async ({ httpUrl }: Service) => samplesOf(await (await fetch(`${httpUrl}/metrics`)).text());
  return { scrape: async () => (await Promise.all(services.map(scrapeOf))).flat() };
}

const OWN = ["target_info"];
const SCOPE = ["otel_scope_name"];

/** The name without what a histogram adds to it. */
const metricOf = (name: string): string => name.replace(/_(bucket|sum|count)$/, "");

testWithStack(
  "what a process with every role exports is in docs/metrics.md, with its labels, and all that rules look at is among it",
  { service: false, timeoutMs: 90_000 },
  async (stack) => {
    const { scrape } = await busyProcess(stack);
    const listed = new Map(readMetricsList().map((one) => [one.name, one]));
    await becomes(async () => {
      const samples = await scrape();
      const lag = (name: string, labels: object) =>
        samples.find(
          (one) => one.name === name && Object.entries(labels).every(([key, held]) => one.labels[key] === held),
        );
      expect(lag("timeline_admitted_to_landed_seconds_count", { event: "user_followed" })?.value).toBe(1);
      expect(lag("timeline_created_to_landed_seconds_count", { event: "drop_created" })?.value).toBe(1);
      expect(lag("timeline_analysis_request_seconds_count", { status: "202" })?.value).toBe(1);
      expect(lag("timeline_users_edge_lag_seconds_count", { lane: "calm" })?.value).toBe(1);
      expect(lag("timeline_ready", {})?.value).toBe(1);
      expect(lag("timeline_outbox_oldest_seconds", { source: "users" })?.value).toBe(0);
      expect(lag("timeline_sse_refused_total", { status: "401" })?.value).toBe(1);
      expect(lag("timeline_sse_resumes_total", { outcome: "reset" })?.value).toBe(0);
      expect(lag("timeline_sse_duplicates_total", {})?.value).toBe(0);
      expect(lag("timeline_posts_maintenance_failures_total", { task: "calibration" })?.value).toBe(0);
      expect(lag("timeline_sse_max_connections", {})?.value).toBe(50_000);
      expect(lag("timeline_redis_up", {})?.value).toBe(1);
    });
    const strange = (await scrape())
      .filter(({ name }) => !OWN.includes(name))
      .map(({ name, labels }) => {
        const metric = listed.get(name) ?? listed.get(metricOf(name));
        const allowed = [...(metric?.labels ?? []), ...SCOPE, ...(metric?.type === "histogram" ? ["le"] : [])];
        return {
          name,
          listed: metric !== undefined,
          strange: Object.keys(labels).filter((one) => !allowed.includes(one)),
        };
      })
      .filter((one) => !one.listed || one.strange.length > 0);
    expect(strange).toEqual([]);

    const recorded = new Set(RECORDED.map(({ record }) => record));
    const watched = new Set([...ALERTS, ...RECORDED].flatMap(metricsIn).filter((name) => !recorded.has(name)));
    await becomes(async () => {
      const exported = new Set((await scrape()).map(({ name }) => name));
      expect([...watched].filter((name) => !exported.has(name))).toEqual([]);
    });
  },
);
