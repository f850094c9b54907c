import { z } from "zod";
import { boundedList, faultsOf } from "../../contracts/untrusted.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { faultInWords } from "../../kernel/fields.js";
import type { Logger } from "../../kernel/logger.js";
import { type DeadLetterOperations, FIELDS, type Removal, SEQ_FAULT } from "./operations.js";
import { grouped, groupsAsJson, MAX_SEQS, SEQS_SHOWN } from "./present.js";
import type { Report } from "./redrive.js";
import { type DeadLetterSummary, deadLetterAsJson } from "./stored-dead-letter.js";

interface DeadLetterApiDeps {
  readonly operations: DeadLetterOperations;
  readonly maxAnswerBytes: () => number;
  readonly pause: (ms: number) => Promise<void>;
  readonly stopping: AbortSignal;
  readonly log: Logger;
}

/** Each endpoint takes the bytes of a request and resolves to a value to answer as JSON. */
export type DeadLetterApi = Readonly<
  Record<"list" | "groups" | "show" | "redrive" | "rm", (request: Uint8Array) => Promise<unknown>>
>;

/** A request that takes longer is answered with the progress so far. */
export const ANSWER_AFTER_MS = 3_000;
const DEFAULT_LIMIT = 100;
const MAX_ITEMS_SHOWN = 100;

const seqFault = (element: unknown): string | undefined =>
  Number.isSafeInteger(element) && (element as number) > 0 ? undefined : SEQ_FAULT;

const limit = z.number().int().positive().max(1_000_000);
const filters = {
  reason: FIELDS.reason.optional(),
  event: FIELDS.event.optional(),
  error: FIELDS.error.optional(),
  since: FIELDS.since.optional(),
};
const selection = {
  ...filters,
  seqs: boundedList<number>(MAX_SEQS, seqFault).optional(),
  all: z.boolean().optional(),
  limit: limit.optional(),
  dry_run: z.boolean().optional(),
};
const LIST = z.strictObject({
  ...filters,
  limit: limit.default(DEFAULT_LIMIT),
  after: z.number().int().nonnegative().default(0),
});
const GROUPS = z.strictObject(filters);
const SHOW = z.strictObject({ seqs: z.tuple([FIELDS.seq], { message: "must name one dead letter" }) });
const REMOVE = z.strictObject(selection);
const REDRIVE = z.strictObject({ ...selection, rate: FIELDS.rate.optional() });

/** Requests fail with AppError `invalid`, `notfound` or `conflict`. */
export function createDeadLetterApi(deps: DeadLetterApiDeps): DeadLetterApi {
  const { operations } = deps;
  let redriving = false;
  return {
    list: async (request) => list(deps, parse(LIST, request)),
    groups: async (request) => groups(deps, parse(GROUPS, request)),
    show: async (request) => show(deps, parse(SHOW, request).seqs[0]),
    rm: async (request) => {
      const asked = parse(REMOVE, request);
      const seqs = await operations.select(asked);
      return answerInTime(deps, (onProgress: (removal: Removal) => void) =>
        operations.remove(seqs, { dryRun: asked.dry_run, stopping: deps.stopping, onProgress }),
      );
    },
    redrive: async (request) => {
      const asked = parse(REDRIVE, request);
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
    },
  };
}

function parse<Schema extends z.ZodType>(schema: Schema, request: Uint8Array): z.output<Schema> {
  let value: unknown;
  try {
    value = request.byteLength === 0 ? {} : JSON.parse(Buffer.from(request).toString());
  } catch (error) {
    throw new AppError("invalid", `the request is not JSON (${oneLine(error)})`);
  }
  const result = schema.safeParse(value, { error: faultInWords });
  if (result.success) return result.data;
  throw new AppError("invalid", faultsOf(result.error, "request"));
}

async function list(
  { operations, maxAnswerBytes }: DeadLetterApiDeps,
  asked: z.output<typeof LIST>,
): Promise<readonly DeadLetterSummary[]> {
  const answer: DeadLetterSummary[] = [];
  let bytes = 2;
  for await (const { summary } of operations.list(asked, { after: asked.after })) {
    bytes += Buffer.byteLength(JSON.stringify(summary)) + 1;
    if (bytes > maxAnswerBytes() || answer.length >= asked.limit) break;
    answer.push(summary);
  }
  return answer;
}

/** A group whose `seqs` have no room names the oldest few. One that has no room even so is left out: it is a small one. */
async function groups(
  { operations, maxAnswerBytes }: DeadLetterApiDeps,
  asked: z.output<typeof GROUPS>,
): Promise<readonly object[]> {
  const all = groupsAsJson(await grouped(operations.list(asked, { bodies: true })));
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
