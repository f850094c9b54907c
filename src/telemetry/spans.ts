import {
  type Attributes,
  type Context,
  context,
  INVALID_TRACEID,
  type Link,
  propagation,
  type Span,
  SpanKind,
  type SpanOptions,
  SpanStatusCode,
  TraceFlags,
  trace,
} from "@opentelemetry/api";
import { oneLine } from "../kernel/errors.js";

const tracer = trace.getTracer("avion-timeline");

/** The headers of a message or a request. */
export interface Headers {
  get(name: string): string | undefined;
  entries(): Iterable<readonly [string, string]>;
}

const getter = {
  keys: (headers: Headers) => [...headers.entries()].map(([name]) => name),
  get: (headers: Headers, name: string) => headers.get(name),
};

export function contextOf(headers: Headers): Context {
  return propagation.extract(context.active(), headers, getter);
}

export function traceHeaders(): Record<string, string> {
  const carrier: Record<string, string> = {};
  propagation.inject(context.active(), carrier);
  return carrier;
}

/** Returns headers that continue the trace of a message, if it is sampled. */
export function sampledTrace(headers: Headers): Readonly<Record<string, string>> | undefined {
  const traceparent = headers.get("traceparent");
  if (!traceparent?.endsWith("-01")) return undefined;
  const tracestate = headers.get("tracestate");
  return { traceparent, ...(tracestate === undefined ? {} : { tracestate }) };
}

export interface OpenSpanOptions extends Pick<SpanOptions, "kind" | "attributes"> {
  readonly parent?: Context;
  /** False: the process exports no span without a parent, so that the ids of one are made only when they are asked for. */
  readonly exportsTraces?: boolean;
}

/** The span is active only in the work that is given to `run`: see decision 17. */
export class OpenSpan {
  #started: Span | undefined;
  readonly #parent: Context;

  constructor(
    private readonly name: string,
    private readonly options: OpenSpanOptions,
  ) {
    this.#parent = options.parent ?? context.active();
    const isExported = options.exportsTraces !== false || trace.getSpanContext(this.#parent) !== undefined;
    this.#started = isExported ? this.#span : undefined;
  }

  get #span(): Span {
    this.#started ??= tracer.startSpan(this.name, this.options, this.#parent);
    return this.#started;
  }

  get headers(): Record<string, string> {
    const { traceId, spanId } = this.#span.spanContext();
    // Propagators look at each digit of the ids, a tenth of what an event costs a bridge.
    if (!this.isSampled && traceId !== INVALID_TRACEID) return { traceparent: `00-${traceId}-${spanId}-00` };
    const headers: Record<string, string> = {};
    propagation.inject(trace.setSpan(this.#parent, this.#span), headers);
    return headers;
  }

  get ids(): { readonly trace_id: string; readonly span_id: string } {
    const { traceId, spanId } = this.#span.spanContext();
    return { trace_id: traceId, span_id: spanId };
  }

  get isSampled(): boolean {
    return this.#started !== undefined && (this.#started.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0;
  }

  run<T>(work: () => T): T {
    return context.with(trace.setSpan(this.#parent, this.#span), work);
  }

  end(error?: unknown): void {
    if (error) this.#started?.setStatus({ code: SpanStatusCode.ERROR, message: oneLine(error) });
    this.#started?.end();
  }
}

/** Opens a span for one of several pieces of work that are done together, so that none is active. */
export const openSpan = (...args: ConstructorParameters<typeof OpenSpan>): OpenSpan => new OpenSpan(...args);

/**
 * Spans of calls that belong to one piece of work, whose trace is active now; none is active. Calls that are not exported
 * share one.
 */
export function spansOf(name: string, options: Pick<SpanOptions, "kind" | "attributes">): () => OpenSpan {
  const parent = context.active();
  const first = openSpan(name, { ...options, parent });
  let next: OpenSpan | undefined = first;
  return () => {
    if (!first.isSampled) return first;
    const span = next ?? openSpan(name, { ...options, parent });
    next = undefined;
    return span;
  };
}

export function inSpan<T>(
  name: string,
  options: {
    readonly kind?: SpanKind;
    readonly attributes?: Attributes;
    readonly parent?: Context;
    readonly links?: readonly Link[];
  },
  work: () => Promise<T>,
): Promise<T> {
  const { kind = SpanKind.INTERNAL, attributes = {}, parent = context.active(), links = [] } = options;
  if (isUnsampled(parent)) return parent === context.active() ? work() : context.with(parent, work);
  const span = tracer.startSpan(name, { kind, attributes, links: [...links] }, parent);
  return context.with(trace.setSpan(parent, span), work).then(
    (result) => {
      span.end();
      return result;
    },
    (error: unknown) => {
      span.setStatus({ code: SpanStatusCode.ERROR, message: oneLine(error) });
      span.end();
      throw error;
    },
  );
}

/** Spans below would not be exported. */
function isUnsampled(parent: Context): boolean {
  const span = trace.getSpanContext(parent);
  return span !== undefined && !span.isRemote && (span.traceFlags & TraceFlags.SAMPLED) === 0;
}

/** Log lines of `work` show the trace. */
export function inTraceOf<T>(headers: Headers, work: () => T): T {
  return context.with(contextOf(headers), work);
}

/** Works as {@link inSpan} if a span is active. */
export const inChildSpan: typeof inSpan = (name, options, work) =>
  trace.getActiveSpan() ? inSpan(name, options, work) : work();

export function annotate(attributes: Attributes): void {
  trace.getActiveSpan()?.setAttributes(attributes);
}

export { SpanKind };
