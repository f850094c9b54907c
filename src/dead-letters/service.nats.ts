import type { NatsConnection, Service, ServiceMsg } from "nats";
import { codeOf, type ErrorCode, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { createDeadLetterApi } from "./api.js";
import type { DeadLetterOperations } from "./operations.js";

interface DeadLetterServiceOptions {
  readonly nats: NatsConnection;
  readonly operations: DeadLetterOperations;
  readonly version: string;
  readonly log: Logger;
}

export type DeadLetterService = Awaited<ReturnType<typeof startDeadLetterService>>;

const ENDPOINTS = {
  list: "Dead letters, oldest first: {reason, event, error, since, limit, after}",
  show: "One dead letter with its body: {seqs: [17]}",
  redrive: "Publishes again: {seqs} or {reason, event, error, since} or {all: true}; dry_run, rate, limit",
  rm: "Deletes: {seqs} or {reason, event, error, since} or {all: true}; dry_run, limit",
} as const;

/** Errors about a request; others answer 500. */
const STATUS: Partial<Record<ErrorCode, number>> = { invalid: 400, notfound: 404, conflict: 409 };

const HEADER_BYTES = 16 * 1024;

/** Offers the operations as the NATS service `avion-dlq`. A refusal by NATS is logged, and does not stop the role. */
export async function startDeadLetterService(options: DeadLetterServiceOptions) {
  const { nats, log } = options;
  const stopping = new AbortController();
  let service: Service | undefined;
  try {
    service = await addService(options, stopping.signal);
    void service.stopped.then((error) => {
      if (error && !stopping.signal.aborted)
        log.error({ error: oneLine(error) }, "the service avion-dlq has stopped; use the command line");
    });
  } catch (error) {
    log.error({ error: oneLine(error) }, "the service avion-dlq could not be started; use the command line");
  }
  return {
    /** Takes no more requests, and ends a redrive after the dead letter it is working on. */
    close: async (): Promise<void> => {
      stopping.abort();
      // Without a connection a stop never ends.
      if (!nats.isClosed()) await Promise.race([service?.stop().catch(() => undefined), pause(SECOND)]);
    },
  };
}

async function addService(options: DeadLetterServiceOptions, stopping: AbortSignal): Promise<Service> {
  const { nats, operations, version, log } = options;
  const maxAnswerBytes = (): number => (nats.info?.max_payload ?? 1024 * 1024) - HEADER_BYTES;
  const api = createDeadLetterApi({ operations, maxAnswerBytes, pause, stopping, log });
  const service = await nats.services.add({ name: "avion-dlq", version, description: "Dead letters" });
  const group = service.addGroup("avion.ops.dlq");
  for (const name of Object.keys(ENDPOINTS) as (keyof typeof ENDPOINTS)[]) {
    group.addEndpoint(name, {
      metadata: { request: ENDPOINTS[name] },
      handler: (error, message) => {
        if (error) return;
        answer(message, api[name], log).catch((failure: unknown) =>
          log.error({ subject: message.subject, error: oneLine(failure) }, "a request was left unanswered"),
        );
      },
    });
  }
  return service;
}

async function answer(
  message: ServiceMsg,
  work: (request: Uint8Array) => Promise<unknown>,
  log: Logger,
): Promise<void> {
  try {
    message.respond(JSON.stringify(await work(message.data)));
  } catch (error) {
    const status = STATUS[codeOf(error)] ?? 500;
    if (status === 500)
      log.warn({ subject: message.subject, error: oneLine(error) }, "a request could not be answered");
    message.respondError(status, headerSafe(oneLine(error)));
  }
}

const headerSafe = (text: string): string => text.replaceAll(/[^\x20-\x7e]/g, "?");
