import { pause } from "../../kernel/time.js";
import { maxAnswerBytes, type NatsService, type ServiceDeps, startNatsService } from "../../platform/nats/service.js";
import { createDeadLetterApi } from "./api.js";
import type { DeadLetterOperations } from "./operations.js";
import { FILTER_NAMES } from "./selection.js";

const SELECTION = `{seqs} or {${FILTER_NAMES}} or {all: true}`;

/** Offers the operations as the NATS service `avion-dlq`. Closing it ends a redrive after the current dead letter. */
export function startDeadLetterService({
  operations,
  ...deps
}: ServiceDeps & { readonly operations: DeadLetterOperations }): Promise<NatsService> {
  const limits = { maxAnswerBytes: () => maxAnswerBytes(deps.nats), pause };
  return startNatsService({
    ...deps,
    name: "avion-dlq",
    description: "Dead letters",
    group: "avion.ops.dlq",
    endpoints: (stopping) => {
      const api = createDeadLetterApi({ operations, ...limits, stopping, log: deps.log });
      return {
        list: { about: `Dead letters, oldest first: {${FILTER_NAMES}, limit, after}`, answer: api.list },
        groups: { about: `Dead letters by cause: {${FILTER_NAMES}}`, answer: api.groups },
        show: { about: "One dead letter with its body: {seqs: [17]}", answer: api.show },
        redrive: { about: `Publishes again: ${SELECTION}; dry_run, rate, limit`, answer: api.redrive },
        rm: { about: `Deletes: ${SELECTION}; dry_run, limit`, answer: api.rm },
      };
    },
  });
}
