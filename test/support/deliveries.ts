import type { Context, Delivery } from "../../src/delivery/handler.js";
import { silent } from "../../src/kernel/logger.js";
import type { Headers } from "../../src/telemetry/spans.js";

/** Headers as a message has them. */
export function headersWith(fields: Readonly<Record<string, string>>): Headers {
  return { get: (name) => fields[name], entries: () => Object.entries(fields) };
}

/** A message as a stream hands it out; what a test does not state is of no matter. */
export function deliveryOf(stated: Partial<Delivery> & { readonly json?: unknown } = {}): Delivery {
  const { json, ...rest } = stated;
  return {
    stream: "DROPS",
    consumer: "planner",
    seq: 1,
    time: 1_700_000_000_000,
    subject: "drops.created",
    headers: headersWith({}),
    body: Buffer.from(json === undefined ? "{}" : JSON.stringify(json)),
    deliveries: 1,
    ...rest,
  };
}

/** A context that goes on until its signal is aborted. */
export function contextWith(stopping: AbortSignal = new AbortController().signal): Context {
  return { stopping, log: silent };
}
