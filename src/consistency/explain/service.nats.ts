import { EXPLAIN_REQUEST } from "../../contracts/explain.js";
import { taking } from "../../contracts/untrusted.js";
import { type NatsService, type ServiceDeps, startNatsService } from "../../platform/nats/service.js";
import { explainedAsJson } from "./explain.js";
import type { Explain } from "./facts.redis.js";

/** Answers like `timeline explain`, as the NATS service `avion-timeline`. Closing it ends questions under way. */
export function startExplainService({
  explain,
  ...deps
}: ServiceDeps & { readonly explain: Explain }): Promise<NatsService> {
  return startNatsService({
    ...deps,
    name: "avion-timeline",
    description: "Timelines",
    group: "avion.ops.timeline",
    endpoints: (stopping) => ({
      explain: {
        about: "Why a home has a drop, or lacks it: {user, drop, author}",
        answer: taking(EXPLAIN_REQUEST, async (asked) => explainedAsJson(await explain(asked, stopping))),
      },
    }),
  });
}
