import {
  type Attributes,
  type Context,
  context,
  propagation,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import type { Delivery, Handler, Headers } from "./handler.js";

const tracer = trace.getTracer("avion-timeline");

const getter = {
  keys: (headers: Headers) => [...headers.entries()].map(([name]) => name),
  get: (headers: Headers, name: string) => headers.get(name),
};

/** The trace context a message carries. */
export function contextOf(headers: Headers): Context {
  return propagation.extract(context.active(), headers, getter);
}

/** The trace context of what runs now, as headers for a message or a call. */
export function traceHeaders(): Record<string, string> {
  const carrier: Record<string, string> = {};
  propagation.inject(context.active(), carrier);
  return carrier;
}

/** Runs `work` in a span of its own; a throw marks the span and goes on. */
export async function inSpan<T>(
  name: string,
  options: { readonly kind?: SpanKind; readonly attributes?: Attributes; readonly parent?: Context },
  work: () => Promise<T>,
): Promise<T> {
  const parent = options.parent ?? context.active();
  const span = tracer.startSpan(
    name,
    { kind: options.kind ?? SpanKind.INTERNAL, attributes: options.attributes ?? {} },
    parent,
  );
  try {
    return await context.with(trace.setSpan(parent, span), work);
  } catch (error) {
    span.setStatus({ code: SpanStatusCode.ERROR, message: error instanceof Error ? error.message : String(error) });
    throw error;
  } finally {
    span.end();
  }
}

/** Runs `work` in the trace that headers carry, so that its log lines show it. */
export function inTraceOf<T>(headers: Headers, work: () => T): T {
  return context.with(contextOf(headers), work);
}

/** Adds to the span that is active. */
export function annotate(attributes: Attributes): void {
  trace.getActiveSpan()?.setAttributes(attributes);
}

/** Puts a message's handler into a span of the trace that is active. */
export function traced(handler: Handler): Handler {
  return (delivery: Delivery, ctx) =>
    inSpan(
      `process ${delivery.subject}`,
      {
        kind: SpanKind.CONSUMER,
        attributes: {
          "messaging.system": "nats",
          "messaging.destination.name": delivery.stream,
          "messaging.consumer.group.name": delivery.consumer,
          "messaging.nats.stream_seq": delivery.seq,
        },
      },
      () => handler(delivery, ctx),
    );
}

export { SpanKind };
