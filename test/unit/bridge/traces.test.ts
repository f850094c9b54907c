import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { propagation, trace } from "@opentelemetry/api";
import { core } from "@opentelemetry/sdk-node";
import { AlwaysOffSampler, BasicTracerProvider, ParentBasedSampler } from "@opentelemetry/sdk-trace-base";
import { createForward } from "../../../src/bridge/bridge.js";
import { silent } from "../../../src/kernel/logger.js";
import { readClocks } from "../../../src/kernel/time.js";

const ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const TRACEPARENT = /^00-([\da-f]{32})-[\da-f]{16}-00$/;

beforeAll(() => {
  propagation.setGlobalPropagator(new core.W3CTraceContextPropagator());
  const sampler = new ParentBasedSampler({ root: new AlwaysOffSampler() });
  trace.setGlobalTracerProvider(new BasicTracerProvider({ sampler }));
});
afterAll(() => {
  trace.disable();
  propagation.disable();
});

/** The ids of the traces that the events of a batch are admitted with. */
async function tracesOf(payloads: readonly object[], exportsTraces: boolean): Promise<(string | undefined)[]> {
  const found: (string | undefined)[] = [];
  const forward = createForward({
    admitAll: async (events) =>
      events.map(({ headers }) => {
        found.push(TRACEPARENT.exec(headers["traceparent"] ?? "")?.[1]);
        return { duplicate: false };
      }),
    deadLetters: { take: async () => "stored" },
    server: {},
    namesErased: async () => false,
    requestReconcile: () => undefined,
    version: "1.2.3",
    exportsTraces,
    log: silent,
    observe: () => undefined,
  });
  const batch = payloads.map((payload) => Buffer.from(JSON.stringify(payload)));
  await forward(
    batch.map((payload) => ({ channel: "drop_deleted", payload, arrival: 1, publishedAfter: readClocks() })),
    () => undefined,
  );
  return found;
}

const EVENTS = ["d1", "d2", "d3"].map((drop_id) => ({ drop_id }));

test("each event that comes without a trace begins one", async () => {
  const traces = await tracesOf(EVENTS, true);
  expect(new Set(traces).size).toBe(3);
  expect(traces).not.toContain(undefined);
});

test("where no trace is exported, events of a batch that come without one share one, and each batch has its own", async () => {
  const traces = [...(await tracesOf(EVENTS, false)), ...(await tracesOf(EVENTS, false))];
  expect(new Set(traces).size).toBe(2);
  expect(traces).not.toContain(undefined);
});

test.each([true, false])("an event that comes with a trace continues it; traces are exported: %s", async (exported) => {
  const traceparent = `00-${ID}-00f067aa0ba902b7-00`;
  const [first, second, third] = await tracesOf([{ ...EVENTS[0], traceparent }, ...EVENTS.slice(1)], exported);
  expect(first).toBe(ID);
  expect([second, third]).not.toContain(ID);
});
