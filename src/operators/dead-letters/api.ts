import { z } from "zod";
import { boundedList, taking } from "../../contracts/untrusted.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { firstOf } from "../../kernel/paging.js";
import type { DeadLetterOperations, Removal } from "./operations.js";
import { grouped, groupsAsJson, MAX_SEQS, SEQS_SHOWN } from "./present.js";
import type { Report } from "./redrive.js";
import { FILTER_SHAPE, type Filters, RATE, SEQ } from "./selection.js";
import { type DeadLetterSummary, deadLetterAsJson, type StoredDeadLetter } from "./stored-dead-letter.js";

interface DeadLetterApiDeps {
  readonly operations: DeadLetterOperations;
  readonly maxAnswerBytes: () => number;
  readonly pause: (ms: number) => Promise<void>;
  readonly stopping: AbortSignal;
  readonly log: Logger;
}

/** Each endpoint takes the JSON of a request, and resolves to that of the answer. */
export type DeadLetterApi = ReturnType<typeof createDeadLetterApi>;

/** A request that takes longer is answered with the progress so far. */
export const ANSWER_AFTER_MS = 3_000;
const DEFAULT_LIMIT = 100;
const MAX_ITEMS_SHOWN = 100;

const seqFault = (element: unknown): string | undefined => SEQ.safeParse(element).error?.issues[0]?.message;

const limit = z.number().int().positive().max(1_000_000);
const GROUPS = z.strictObject(FILTER_SHAPE);
const LIST = GROUPS.extend({
  limit: limit.default(DEFAULT_LIMIT),
  after: z.number().int().nonnegative().default(0),
});
const SHOW = z.strictObject({ seqs: z.tuple([SEQ], { message: "must name one dead letter" }) });
const REMOVE = GROUPS.extend({
  seqs: boundedList<number>(MAX_SEQS, seqFault, { type: "integer" }).optional(),
  all: z.boolean().optional(),
  limit: limit.optional(),
  dry_run: z.boolean().optional(),
});
const REDRIVE = REMOVE.extend({ rate: RATE.optional() });

/** Requests fail with AppError `invalid`, `notfound` or `conflict`. */
export function createDeadLetterApi(deps: DeadLetterApiDeps) {
  const { operations, maxAnswerBytes } = deps;
  let redriving = false;
  return {
    list: taking(LIST, ({ after, limit, ...filters }) =>
      firstOf(summaries(operations.list(filters, { after })), limit, maxAnswerBytes()),
    ),
    groups: taking(GROUPS, (filters) => groups(deps, filters)),
    show: taking(SHOW, ({ seqs: [seq] }) => show(deps, seq)),
    rm: taking(REMOVE, async (asked) => {
      const seqs = await operations.select(asked);
      return answerInTime(deps, (onProgress: (removal: Removal) => void) =>
        operations.remove(seqs, { dryRun: asked.dry_run, stopping: deps.stopping, onProgress }),
      );
    }),
    redrive: taking(REDRIVE, async (asked) => {
      if (redriving) throw new AppError("conflict", "this process is redriving already: ask again when it is done");
      redriving = true;
      const done = (): void => {
        redriving = false;
      };
      try {
        const seqs = await operations.select(asked);
        return await answerInTime(deps, (onProgress: (report: Report) => void) =>
          redriveAll(deps, seqs, { asked, onProgress }).finally(done),
        );
      } catch (error) {
        done();
        throw error;
      }
    }),
  };
}

async function* summaries(deadLetters: AsyncIterable<StoredDeadLetter>): AsyncGenerator<DeadLetterSummary> {
  for await (const { summary } of deadLetters) yield summary;
}

/** A group whose `seqs` have no room names the oldest few. One that has no room even so is left out: it is a small one. */
async function groups({ operations, maxAnswerBytes }: DeadLetterApiDeps, filters: Filters): Promise<readonly object[]> {
  const all = groupsAsJson(await grouped(operations.list(filters, { bodies: true })));
  let room = maxAnswerBytes() - 2;
  return all.flatMap((group) => {
    const short = { ...group, seqs: group.seqs.slice(0, SEQS_SHOWN) };
    const fitting = [group, short].find((candidate) => jsonBytes(candidate) < room);
    if (fitting) room -= jsonBytes(fitting) + 1;
    return fitting ?? [];
  });
}

const jsonBytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));

async function show({ operations, maxAnswerBytes }: DeadLetterApiDeps, seq: number): Promise<unknown> {
  const whole = deadLetterAsJson(await operations.show(seq));
  if (jsonBytes(whole) <= maxAnswerBytes()) return whole;
  return { ...whole, body_encoding: "omitted", body: null };
}

async function redriveAll(
  { operations, stopping, log }: DeadLetterApiDeps,
  seqs: readonly number[],
  { asked, onProgress }: { readonly asked: z.output<typeof REDRIVE>; readonly onProgress: (report: Report) => void },
): Promise<Report> {
  const report = await operations.redrive(seqs, { rate: asked.rate, dryRun: asked.dry_run, stopping, onProgress });
  const { redriven, refused, failed, overtaken } = report;
  const counts = { redriven: redriven.length, refused: refused.length, failed: failed.length };
  if (!asked.dry_run) log.info({ ...counts, overtaken: overtaken.length }, "dead letters were redriven");
  return report;
}

/** Work that takes too long is answered with its progress, and goes on. */
async function answerInTime<Answer extends Report | Removal>(
  { pause, log, maxAnswerBytes }: DeadLetterApiDeps,
  start: (onProgress: (outcome: Answer) => void) => Promise<Answer>,
): Promise<unknown> {
  let progress: Answer | undefined;
  const work = start((outcome) => {
    progress = outcome;
  });
  const outcome = await Promise.race([work, pause(ANSWER_AFTER_MS)]);
  if (outcome) return shortened(outcome, maxAnswerBytes());
  work.catch((error: unknown) =>
    log.error({ error: oneLine(error) }, "a request about dead letters failed after its first answer"),
  );
  return { running: true, ...shortened(progress ?? {}, maxAnswerBytes()) };
}

/** Cuts the lists of an answer that is too large, and adds their lengths. */
function shortened(outcome: object, maxBytes: number): object {
  if (Buffer.byteLength(JSON.stringify(outcome)) <= maxBytes) return outcome;
  const lists = Object.entries(outcome) as [string, readonly unknown[]][];
  const counts = Object.fromEntries(lists.map(([name, { length }]) => [name, length]));
  return { ...Object.fromEntries(lists.map(([name, items]) => [name, items.slice(0, MAX_ITEMS_SHOWN)])), counts };
}
