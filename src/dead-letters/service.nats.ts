import type { NatsConnection, Service, ServiceMsg } from "nats";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import type { Publish } from "../platform/nats/publish.js";
import { createLettersApi, RequestError } from "./api.js";
import { createLetters, createLogAge } from "./store.nats.js";
import type { Upstreams } from "./superseded.js";

/** What the service is started with. */
export interface LettersServiceOptions {
  readonly connection: NatsConnection;
  readonly publish: Publish;
  readonly upstreams: Upstreams;
  readonly version: string;
  readonly log: Logger;
}

/** A running service. */
export interface LettersService {
  /** Takes no more requests, and ends a redrive under way after the letter it has in hand. */
  close(): Promise<void>;
}

const ENDPOINTS = {
  list: "Letters, oldest first: {reason, event, error, since, limit, after}",
  show: "One letter whole: {seqs: [17]}",
  redrive: "Sends letters back to work: {seqs} or {reason, event, error, since} or {all: true}; dry_run, rate, limit",
  rm: "Deletes letters: {seqs} or {reason, event, error, since} or {all: true}; dry_run, limit",
} as const;

/** Bytes of an answer that are not its text. */
const HEADER_ROOM = 16 * 1024;

/**
 * Offers the dead-letter operations as the NATS service `avion-dlq`. Where the
 * server does not allow that, it is logged: timelines go on without it.
 */
export async function startLettersService(options: LettersServiceOptions): Promise<LettersService> {
  const { connection, log } = options;
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
    close: async () => {
      stopping.abort();
      // While NATS is away a stop never ends by itself.
      if (!connection.isClosed()) await Promise.race([service?.stop().catch(() => undefined), pause(SECOND)]);
    },
  };
}

async function addService(options: LettersServiceOptions, stopping: AbortSignal): Promise<Service> {
  const { connection, publish, upstreams, version, log } = options;
  const letters = createLetters(connection);
  const api = createLettersApi({
    letters,
    redriveDeps: { letters, publish, upstreams, logAgeMs: createLogAge(connection), now: Date.now, pause },
    maxAnswerBytes: () => (connection.info?.max_payload ?? 1024 * 1024) - HEADER_ROOM,
    pause,
    stopping,
    log,
  });
  const service = await connection.services.add({ name: "avion-dlq", version, description: "Dead letters" });
  const group = service.addGroup("avion.ops.dlq");
  for (const name of Object.keys(ENDPOINTS) as (keyof typeof ENDPOINTS)[]) {
    group.addEndpoint(name, {
      metadata: { request: ENDPOINTS[name] },
      handler: (error, message) => {
        if (error) return;
        answer(message, api[name], log).catch((broken: unknown) =>
          log.error({ subject: message.subject, error: oneLine(broken) }, "a request was left unanswered"),
        );
      },
    });
  }
  return service;
}

/** The client takes no promise: whatever goes wrong is answered here. */
async function answer(
  message: ServiceMsg,
  work: (request: Uint8Array) => Promise<unknown>,
  log: Logger,
): Promise<void> {
  try {
    message.respond(JSON.stringify(await work(message.data)));
  } catch (error) {
    const code = error instanceof RequestError ? error.code : 500;
    if (code === 500) log.warn({ subject: message.subject, error: oneLine(error) }, "a request could not be answered");
    message.respondError(code, headerSafe(oneLine(error)));
  }
}

const headerSafe = (text: string): string => text.replaceAll(/[^\x20-\x7e]/g, "?");
