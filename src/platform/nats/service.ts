import type { NatsConnection, Service, ServiceMsg } from "nats";
import { parseJson } from "../../contracts/events.js";
import { codeOf, type ErrorCode, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";

interface Endpoint {
  readonly about: string;
  /** Takes a request and resolves to the answer, both JSON. */
  readonly answer: (request: unknown) => Promise<unknown>;
}

/** Each service of operators needs these. */
export interface ServiceDeps {
  readonly nats: NatsConnection;
  readonly version: string;
  readonly log: Logger;
}

interface ServiceOptions extends ServiceDeps {
  readonly name: string;
  readonly description: string;
  readonly group: string;
  /** The signal aborts once the service closes. */
  readonly endpoints: (stopping: AbortSignal) => Readonly<Record<string, Endpoint>>;
}

export type NatsService = Awaited<ReturnType<typeof startNatsService>>;

/** Codes of errors that are about the request; others answer 500. */
const STATUS: Partial<Record<ErrorCode, number>> = { invalid: 400, notfound: 404, conflict: 409 };

/** A refusal by NATS is logged, and does not stop the role. */
export async function startNatsService(options: ServiceOptions) {
  const { nats, name, log } = options;
  const stopping = new AbortController();
  let service: Service | undefined;
  try {
    service = await addService(options, stopping.signal);
    void service.stopped.then((error) => {
      if (error && !stopping.signal.aborted)
        log.error({ error: oneLine(error) }, `the service ${name} has stopped; use the command line`);
    });
  } catch (error) {
    log.error({ error: oneLine(error) }, `the service ${name} could not be started; use the command line`);
  }
  return {
    close: async (): Promise<void> => {
      stopping.abort();
      // A stop never ends if there is no connection.
      if (!nats.isClosed()) await Promise.race([service?.stop().catch(() => undefined), pause(SECOND)]);
    },
  };
}

async function addService(options: ServiceOptions, stopping: AbortSignal): Promise<Service> {
  const { nats, name, version, description, endpoints, log } = options;
  const service = await nats.services.add({ name, version, description });
  const subjects = service.addGroup(options.group);
  for (const [endpoint, { about, answer }] of Object.entries(endpoints(stopping))) {
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

/** Reads the JSON of a request; an empty one is {}. @throws AppError `invalid` */
export const requestIn = (bytes: Uint8Array): unknown => (bytes.byteLength === 0 ? {} : parseJson(bytes));

async function respond(message: ServiceMsg, answer: Endpoint["answer"], log: Logger): Promise<void> {
  try {
    message.respond(JSON.stringify(await answer(requestIn(message.data))));
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
