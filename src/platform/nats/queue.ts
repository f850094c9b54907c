import { AppError } from "../../kernel/errors.js";
import { traceHeaders } from "../../telemetry/spans.js";
import type { Message, PublishAll } from "./publish.js";

/** Resolves after every PubAck. */
export type Queue<Job> = (jobs: readonly Job[]) => Promise<void>;

/** The jobs continue the active trace. */
export function createQueue<Job>(
  publishAll: PublishAll,
  subjectOf: (job: Job) => string,
  idOf: (job: Job) => string,
): Queue<Job> {
  return async (jobs) => {
    const headers = traceHeaders();
    const messageOf = (job: Job) => ({ subject: subjectOf(job), body: JSON.stringify(job), id: idOf(job), headers });
    await stored(publishAll, jobs.map(messageOf));
  };
}

/** Resolves after every PubAck. */
export async function stored(publishAll: PublishAll, messages: readonly Message[]): Promise<void> {
  const failed = (await publishAll(messages)).find((result) => result instanceof AppError);
  if (failed) throw failed;
}
