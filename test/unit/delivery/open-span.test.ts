import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { propagation, trace } from "@opentelemetry/api";
import { core } from "@opentelemetry/sdk-node";
import { AlwaysOffSampler, BasicTracerProvider, ParentBasedSampler } from "@opentelemetry/sdk-trace-base";
import { contextOf, openSpan } from "../../../src/delivery/telemetry.js";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";

afterAll(() => {
  trace.disable();
  propagation.disable();
});

test("a process without telemetry continues no trace", () => {
  expect(openSpan("test", {}).headers).toEqual({});
});

describe("with telemetry", () => {
  beforeAll(() => {
    propagation.setGlobalPropagator(new core.W3CTraceContextPropagator());
    const sampler = new ParentBasedSampler({ root: new AlwaysOffSampler() });
    trace.setGlobalTracerProvider(new BasicTracerProvider({ sampler }));
  });

  test.each(["00", "01"])("the headers of a span continue its trace, with flags %s", (flags) => {
    const parent = contextOf(new Map([["traceparent", `00-${TRACE}-00f067aa0ba902b7-${flags}`]]));
    const span = openSpan("test", { parent });
    expect(span.ids.trace_id).toBe(TRACE);
    expect(span.headers).toEqual({ traceparent: `00-${TRACE}-${span.ids.span_id}-${flags}` });
  });
});
