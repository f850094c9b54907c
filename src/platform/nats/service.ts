import type { NatsConnection, Service, ServiceMsg } from "nats";
import { codeOf, type ErrorCode, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";

interface Endpoint {
  readonly about: string;
  /** Takes the bytes of a request and resolves to a value to answer as JSON. */
  readonly answer: (request: Uint8Array) => Promise<unknown>;
}

interface ServiceOptions {
  readonly nats: NatsConnection;
  readonly name: string;
  readonly description: string;
  readonly version: string;
  readonly group: string;
  readonly endpoints: Readonly<Record<string, Endpoint>>;
  readonly log: Logger;
}

export type NatsService = Awaited<ReturnType<typeof startNatsService>>;

/** Codes of errors that are about the request; others answer 500. */
const STATUS: Partial<Record<ErrorCode, number>> = { invalid: 400, notfound: 404, conflict: 409 };

/** A refusal by NATS is logged, and does not stop the role. */
export async function startNatsService(options: ServiceOptions) {
  const { nats, name, log } = options;
  let closing = false;
  let service: Service | undefined;
  try {
    service = await addService(options);
    void service.stopped.then((error) => {
      if (error && !closing)
        log.error({ error: oneLine(error) }, `the service ${name} has stopped; use the command line`);
    });
  } catch (error) {
    log.error({ error: oneLine(error) }, `the service ${name} could not be started; use the command line`);
  }
  return {
    close: async (): Promise<void> => {
      closing = true;
      // A stop never ends if there is no connection.
      if (!nats.isClosed()) await Promise.race([service?.stop().catch(() => undefined), pause(SECOND)]);
    },
  };
}

async function addService(options: ServiceOptions): Promise<Service> {
  const { nats, name, version, description, endpoints, log } = options;
  const service = await nats.services.add({ name, version, description });
  const subjects = service.addGroup(options.group);
  for (const [endpoint, { about, answer }] of Object.entries(endpoints)) {
    subjects.addEndpoint(endpoint, {
      metadata: { request: about },
      handler: (error, message) => {
        if (error) return;
        respond(message, answer, log).catch((failure: unknown) =>
          log.error({ subject: message.subject, error: oneLine(failure) }, "a request was left unanswered"),
        );
      },
    });
  }
  return service;
}

async function respond(message: ServiceMsg, answer: Endpoint["answer"], log: Logger): Promise<void> {
  try {
    message.respond(JSON.stringify(await answer(message.data)));
  } catch (error) {
    const status = STATUS[codeOf(error)] ?? 500;
    if (status === 500)
      log.warn({ subject: message.subject, error: oneLine(error) }, "a request could not be answered");
    message.respondError(status, headerSafe(oneLine(error)));
  }
}

const headerSafe = (text: string): string => text.replaceAll(/[^\x20-\x7e]/g, "?");

const HEADER_BYTES = 16 * 1_024;

/** The bound is for an answer with its headers. */
export const maxAnswerBytes = (nats: NatsConnection): number =>
  (nats.info?.max_payload ?? 1_024 * 1_024) - HEADER_BYTES;
