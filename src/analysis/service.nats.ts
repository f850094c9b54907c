import { z } from "zod";
import { taking } from "../contracts/untrusted.js";
import type { Publish } from "../platform/nats/publish.js";
import { maxAnswerBytes, type NatsService, type ServiceDeps, startNatsService } from "../platform/nats/service.js";
import { createAnalysisOperations } from "./operations.nats.js";

const LIST = z.strictObject({ limit: z.int().positive().max(10_000).default(100) });
const SHOW = z.strictObject({ analysis_id: z.string() });

export function startAnalysisService({
  publish,
  ...deps
}: ServiceDeps & { readonly publish: Publish }): Promise<NatsService> {
  const operations = createAnalysisOperations({ nats: deps.nats, publish });
  return startNatsService({
    ...deps,
    name: "avion-analysis",
    description: "Analyses",
    group: "avion.ops.analysis",
    endpoints: () => ({
      list: {
        about: "Analyses that are not done: those that wait, then the dead letters: {limit}",
        answer: taking(LIST, ({ limit }) => operations.first(limit, maxAnswerBytes(deps.nats))),
      },
      show: {
        about: "One analysis: {analysis_id}",
        answer: taking(SHOW, ({ analysis_id }) => operations.show(analysis_id)),
      },
    }),
  });
}
