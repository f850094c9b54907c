import { randomUUID } from "node:crypto";
import { readdirSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { FOLDER } from "../dashboards/main.js";
import { openApi } from "../support/api.js";
import { eventually } from "../support/eventually.js";
import { runMain, type ServiceProcess } from "../support/service.js";
import { type EventStream, requestEvents } from "../support/sse.js";
import { tokenOf } from "../support/tokens.js";
import { panelsOf, queryAt } from "../unit/shipping/dashboards.js";
import { inRepository, readText } from "../unit/shipping/files.js";
import { PROMETHEUS } from "../unit/shipping/rules.js";

/** The fields of the JSON of `up --json` that this test uses. */
interface Facts {
  readonly variables: Readonly<Record<"HTTP" | "GRPC" | "REDIS_URL" | "TIMELINE_JWT_SECRET", string>>;
  readonly dashboards: { readonly prometheus_url: string; readonly not_installed: readonly string[] };
}

interface Answer {
  readonly status: string;
  readonly error?: string;
  readonly data?: { readonly result: readonly { readonly value: [number, string] }[] };
}

/** Queries by dashboard, as Grafana sends them for the sandbox. */
const QUERIES = readdirSync(inRepository(FOLDER)).flatMap((file) =>
  panelsOf(readText(`${FOLDER}/${file}`)).flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => ({ file, title, query: queryAt(expr, { namespace: "sandbox", release: "up" }) })),
  ),
);
/** Drops alone fill the panels of these dashboards. */
const FILLED = QUERIES.filter(({ file }) => ["overview.json", "pipeline.json"].includes(file));

(PROMETHEUS ? describe : describe.skip)("`up --dashboards`", () => {
  let up: ServiceProcess;
  let facts: Facts;
  let api: ReturnType<typeof openApi>;
  let redis: Redis;
  let stream: EventStream;

  beforeAll(async () => {
    up = runMain(["up", "--http-port", "0", "--grpc-port", "0", "--followers", "50", "--dashboards", "--json"], {});
    await eventually(() => up.output().includes("\n") || up.logs(), "up says that it is up", 120_000);
    facts = JSON.parse(up.output()) as Facts;
    api = openApi(facts.variables.GRPC);
    redis = new Redis(facts.variables.REDIS_URL);
    await api.follow({ follower_id: "reader", following_id: "author" });
    stream = await requestEvents(facts.variables.HTTP, { token: await tokenOfReader() });
    expect(stream.status).toBe(200);
  }, 150_000);

  afterAll(async () => {
    stream?.close();
    api?.close();
    redis?.disconnect();
    expect(await up?.stop()).toEqual({ code: 0, signal: null });
    await expect(fetch(facts.dashboards.prometheus_url)).rejects.toThrow();
  }, 60_000);

  const tokenOfReader = () => tokenOf("reader", { secret: facts.variables.TIMELINE_JWT_SECRET });

  async function ask(query: string): Promise<Answer> {
    const url = `${facts.dashboards.prometheus_url}/api/v1/query?query=${encodeURIComponent(query)}`;
    return (await (await fetch(url)).json()) as Answer;
  }

  /** Publishes a drop over an outbox and one over Redis Pub/Sub. A reader sees both, and Prometheus counts them. */
  async function postAndSee(): Promise<void> {
    const other = { drop_id: randomUUID(), user_id: "author", visibility: "public", created_at: Date.now() };
    await redis.publish("drop_created", JSON.stringify(other));
    const { drop_id } = await api.post("author", { body: `Drop ${stream.drops().length + 1}` });
    await eventually(
      () => [drop_id, other.drop_id].every((id) => stream.drops().includes(id)),
      "both drops on the stream",
    );
    const headers = { authorization: `Bearer ${await tokenOfReader()}` };
    expect((await fetch(`${facts.variables.HTTP}/api/v1/timelines/home`, { headers })).status).toBe(200);
    await eventually(async () => {
      const { data } = await ask('sum(timeline_sse_events_total{type="new_drop"})');
      return Number(data?.result[0]?.value[1]) === stream.drops().length;
    }, "both drops in the metrics");
  }

  test("Prometheus evaluates every query of the dashboards", async () => {
    expect(QUERIES.length).toBeGreaterThan(80);
    for (const { file, title, query } of QUERIES) {
      const { status, error } = await ask(query);
      expect({ file, title, status, error }).toEqual({ file, title, status: "success", error: undefined });
    }
  });

  test("drops that are published and read fill each panel of the overview and of the pipeline", async () => {
    const empty = new Set(FILLED);
    expect(empty.size).toBeGreaterThan(20);
    const filled = async (): Promise<true | string> => {
      await postAndSee();
      for (const one of empty) {
        const { data } = await ask(one.query);
        if (data?.result.some(({ value: [, number] }) => number !== "NaN")) empty.delete(one);
      }
      return empty.size === 0 || JSON.stringify([...empty]);
    };
    await eventually(filled, "every panel shows a number", 120_000);
  }, 150_000);
});
