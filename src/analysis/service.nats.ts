import type { NatsConnection } from "nats";
import { z } from "zod";
import { parseJson } from "../contracts/events.js";
import { understood } from "../contracts/untrusted.js";
import type { Logger } from "../kernel/logger.js";
import type { Publish } from "../platform/nats/publish.js";
import { maxAnswerBytes, type NatsService, startNatsService } from "../platform/nats/service.js";
import { createAnalysisOperations, type Unfinished } from "./operations.nats.js";

interface AnalysisServiceOptions {
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly version: string;
  readonly log: Logger;
}

const LIST = z.strictObject({ limit: z.int().positive().max(10_000).default(100) });
const SHOW = z.strictObject({ analysis_id: z.string() });

const EMPTY = Buffer.from("{}");

export function startAnalysisService({ nats, publish, version, log }: AnalysisServiceOptions): Promise<NatsService> {
  const operations = createAnalysisOperations({ nats, publish });
  const read = <Schema extends z.ZodType>(schema: Schema, request: Uint8Array): z.output<Schema> =>
    understood(schema, parseJson(request.byteLength === 0 ? EMPTY : request));
  const list = async (limit: number): Promise<Unfinished[]> => {
    const listed: Unfinished[] = [];
    let bytes = 2;
    for await (const analysis of operations.list()) {
      bytes += Buffer.byteLength(JSON.stringify(analysis)) + 1;
      if (bytes > maxAnswerBytes(nats)) break;
      if (listed.push(analysis) === limit) break;
    }
    return listed;
  };
  return startNatsService({
    nats,
    version,
    log,
    name: "avion-analysis",
    description: "Analyses",
    group: "avion.ops.analysis",
    endpoints: {
      list: {
        about: "Analyses that are not done: those that wait, then the dead letters: {limit}",
        answer: (request) => list(read(LIST, request).limit),
      },
      show: {
        about: "One analysis: {analysis_id}",
        answer: (request) => operations.show(read(SHOW, request).analysis_id),
      },
    },
  });
}
