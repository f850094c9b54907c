import type { NatsConnection } from "nats";
import type { Logger } from "../../kernel/logger.js";
import { pause } from "../../kernel/time.js";
import { maxAnswerBytes, type NatsService, startNatsService } from "../../platform/nats/service.js";
import { createDeadLetterApi } from "./api.js";
import type { DeadLetterOperations } from "./operations.js";

interface DeadLetterServiceOptions {
  readonly nats: NatsConnection;
  readonly operations: DeadLetterOperations;
  readonly version: string;
  readonly log: Logger;
}

const SELECTION = "{seqs} or {reason, event, error, since} or {all: true}";

/** Offers the operations as the NATS service `avion-dlq`. Closing it ends a redrive after the current dead letter. */
export async function startDeadLetterService(options: DeadLetterServiceOptions): Promise<NatsService> {
  const { nats, operations, log } = options;
  const stopping = new AbortController();
  const limits = { maxAnswerBytes: () => maxAnswerBytes(nats), pause, stopping: stopping.signal };
  const api = createDeadLetterApi({ operations, ...limits, log });
  const service = await startNatsService({
    ...options,
    name: "avion-dlq",
    description: "Dead letters",
    group: "avion.ops.dlq",
    endpoints: {
      list: { about: "Dead letters, oldest first: {reason, event, error, since, limit, after}", answer: api.list },
      groups: { about: "Dead letters by cause: {reason, event, error, since}", answer: api.groups },
      show: { about: "One dead letter with its body: {seqs: [17]}", answer: api.show },
      redrive: { about: `Publishes again: ${SELECTION}; dry_run, rate, limit`, answer: api.redrive },
      rm: { about: `Deletes: ${SELECTION}; dry_run, limit`, answer: api.rm },
    },
  });
  return {
    close: () => {
      stopping.abort();
      return service.close();
    },
  };
}
