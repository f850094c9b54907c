import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { context, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { core } from "@opentelemetry/sdk-node";
import { AlwaysOffSampler, BasicTracerProvider, ParentBasedSampler } from "@opentelemetry/sdk-trace-base";
import { contextOf, openSpan, spansOf } from "../../../src/telemetry/spans.js";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";

afterAll(() => {
  context.disable();
  trace.disable();
  propagation.disable();
});

test("a process without telemetry continues no trace", () => {
  expect(openSpan("test", {}).headers).toEqual({});
});

describe("with telemetry", () => {
  beforeAll(() => {
    propagation.setGlobalPropagator(new core.W3CTraceContextPropagator());
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    const sampler = new ParentBasedSampler({ root: new AlwaysOffSampler() });
    trace.setGlobalTracerProvider(new BasicTracerProvider({ sampler }));
  });

  test.each(["00", "01"])("the headers of a span continue its trace, with flags %s", (flags) => {
    const parent = contextOf(new Map([["traceparent", `00-${TRACE}-00f067aa0ba902b7-${flags}`]]));
    const span = openSpan("test", { parent });
    expect(span.ids.trace_id).toBe(TRACE);
    expect(span.headers).toEqual({ traceparent: `00-${TRACE}-${span.ids.span_id}-${flags}` });
  });

  test("calls of one piece of work share a span, unless their trace is sampled", () => {
    const idsOf = (flags: string) => {
      const parent = contextOf(new Map([["traceparent", `00-${TRACE}-00f067aa0ba902b7-${flags}`]]));
      const next = context.with(parent, () => spansOf("call", {}));
      return [next(), next(), next()].map(({ ids }) => ids);
    };
    for (const { flags, spans } of [
      { flags: "00", spans: 1 },
      { flags: "01", spans: 3 },
    ]) {
      const all = idsOf(flags);
      expect(new Set(all.map(({ trace_id }) => trace_id))).toEqual(new Set([TRACE]));
      expect(new Set(all.map(({ span_id }) => span_id)).size).toBe(spans);
    }
  });
});
