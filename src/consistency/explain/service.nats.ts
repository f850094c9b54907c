import type { NatsConnection } from "nats";
import { parseJson } from "../../contracts/events.js";
import { EXPLAIN_REQUEST } from "../../contracts/explain.js";
import { understood } from "../../contracts/untrusted.js";
import type { Logger } from "../../kernel/logger.js";
import { type NatsService, startNatsService } from "../../platform/nats/service.js";
import { explainedAsJson } from "./explain.js";
import type { Explain } from "./facts.redis.js";

interface ExplainServiceOptions {
  readonly nats: NatsConnection;
  readonly explain: Explain;
  readonly version: string;
  readonly log: Logger;
}

/** Answers like `timeline explain`, as the NATS service `avion-timeline`. Closing it ends questions under way. */
export async function startExplainService({ explain, ...options }: ExplainServiceOptions): Promise<NatsService> {
  const stopping = new AbortController();
  const service = await startNatsService({
    ...options,
    name: "avion-timeline",
    description: "Timelines",
    group: "avion.ops.timeline",
    endpoints: {
      explain: {
        about: "Why a home has a drop, or lacks it: {user, drop, author}",
        answer: async (request) =>
          explainedAsJson(await explain(understood(EXPLAIN_REQUEST, parseJson(request)), stopping.signal)),
      },
    },
  });
  return {
    close: () => {
      stopping.abort();
      return service.close();
    },
  };
}
