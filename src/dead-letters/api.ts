import { z } from "zod";
import { boundedList, faultsOf } from "../contracts/untrusted.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type Letters, type ListedLetter, MissingLetters } from "./dead-letter.js";
import { letterAsJson } from "./present.js";
import { type RedriveDeps, type RedriveOptions, type Report, redrive } from "./redrive.js";
import { type Removal, remove } from "./remove.js";
import { FIELDS, matches, type Selection, selectionFault, selectSeqs } from "./selection.js";

/** A request that cannot be answered as asked: it makes no sense, there is no such letter, or not now. */
export class RequestError extends Error {
  constructor(
    readonly code: 400 | 404 | 409,
    message: string,
  ) {
    super(message);
  }
}

/** What requests are answered with. */
export interface LettersApiDeps {
  readonly letters: Letters;
  readonly redriveDeps: RedriveDeps;
  /** Bytes an answer may have. */
  readonly maxAnswerBytes: () => number;
  /** Waits, so that work that takes long is answered before it is done. */
  readonly pause: (ms: number) => Promise<void>;
  readonly stopping: AbortSignal;
  readonly log: Logger;
}

/** Answers requests by the name of their endpoint: takes their bytes, returns what is to be sent as JSON. */
export type LettersApi = Readonly<
  Record<"list" | "show" | "redrive" | "rm", (request: Uint8Array) => Promise<unknown>>
>;

/** Work that takes longer is answered with how far it is. */
export const ANSWER_AFTER_MS = 3_000;
const LISTED = 100;
const MAX_SEQS = 10_000;
/** So many of a list are told where an answer has no room for all. */
const TOLD = 100;

const seqFault = (element: unknown): string | undefined =>
  Number.isSafeInteger(element) && (element as number) > 0 ? undefined : "must be a letter's sequence";

const limit = z.number().int().positive().max(1_000_000);
const filters = {
  reason: FIELDS.reason.optional(),
  event: FIELDS.event.optional(),
  error: FIELDS.error.optional(),
  since: FIELDS.since.optional(),
};
const chosen = {
  ...filters,
  seqs: boundedList<number>(MAX_SEQS, seqFault).optional(),
  all: z.boolean().optional(),
  limit: limit.optional(),
  dry_run: z.boolean().optional(),
};
const LIST = z.strictObject({
  ...filters,
  limit: limit.default(LISTED),
  after: z.number().int().nonnegative().default(0),
});
const SHOW = z.strictObject({ seqs: z.tuple([FIELDS.seq], { message: "must name one letter" }) });
const REMOVE = z.strictObject(chosen);
const REDRIVE = z.strictObject({ ...chosen, rate: FIELDS.rate.optional() });

/** The dead-letter operations as requests and answers; every method throws RequestError, or what went wrong. */
export function createLettersApi(deps: LettersApiDeps): LettersApi {
  let redriving = false;
  return {
    list: async (request) => list(deps, parsed(LIST, request)),
    show: async (request) => show(deps, parsed(SHOW, request).seqs[0]),
    rm: async (request) => {
      const asked = parsed(REMOVE, request);
      const seqs = await chosenSeqs(deps, asked);
      return soon(deps, (watch: (removal: Removal) => void) =>
        remove(deps.letters, seqs, { dryRun: asked.dry_run, watch }),
      );
    },
    redrive: async (request) => {
      const asked = parsed(REDRIVE, request);
      if (redriving)
        throw new RequestError(409, "this process is redriving letters already: ask again when it is done");
      redriving = true;
      try {
        const seqs = await chosenSeqs(deps, asked);
        const options: RedriveOptions = { rate: asked.rate, dryRun: asked.dry_run, stopping: deps.stopping };
        return await soon(
          deps,
          (watch: (report: Report) => void) => redriveAll(deps, seqs, { ...options, watch }),
          () => {
            redriving = false;
          },
        );
      } catch (error) {
        redriving = false;
        throw error;
      }
    },
  };
}

function parsed<Schema extends z.ZodType>(schema: Schema, request: Uint8Array): z.output<Schema> {
  let value: unknown;
  try {
    value = request.byteLength === 0 ? {} : JSON.parse(Buffer.from(request).toString());
  } catch (error) {
    throw new RequestError(400, `the request is not JSON (${oneLine(error)})`);
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new RequestError(400, faultsOf(result.error, "request"));
}

async function chosenSeqs({ letters }: LettersApiDeps, selection: Selection): Promise<number[]> {
  const fault = selectionFault(selection);
  if (fault) throw new RequestError(400, `seqs: ${fault}`);
  try {
    return await selectSeqs(letters, selection);
  } catch (error) {
    throw error instanceof MissingLetters ? new RequestError(404, error.message) : error;
  }
}

async function list(
  { letters, maxAnswerBytes }: LettersApiDeps,
  asked: z.output<typeof LIST>,
): Promise<readonly ListedLetter[]> {
  const answer: ListedLetter[] = [];
  let bytes = 2;
  for await (const letter of letters.read({ after: asked.after })) {
    if (!matches(letter, asked)) continue;
    bytes += Buffer.byteLength(JSON.stringify(letter.listed)) + 1;
    if (bytes > maxAnswerBytes() || answer.length >= asked.limit) break;
    answer.push(letter.listed);
  }
  return answer;
}

async function show({ letters, maxAnswerBytes }: LettersApiDeps, seq: number): Promise<unknown> {
  const letter = await letters.find(seq);
  if (!letter) throw new RequestError(404, new MissingLetters([seq]).message);
  const whole = letterAsJson(letter);
  if (Buffer.byteLength(JSON.stringify(whole)) <= maxAnswerBytes()) return whole;
  return { ...whole, body_encoding: "omitted", body: null };
}

async function redriveAll(
  { redriveDeps, log }: LettersApiDeps,
  seqs: readonly number[],
  options: RedriveOptions,
): Promise<Report> {
  const report = await redrive(redriveDeps, seqs, options);
  const { redriven, refused, failed, overtaken } = report;
  const counts = { redriven: redriven.length, refused: refused.length, failed: failed.length };
  if (!options.dryRun) log.info({ ...counts, overtaken: overtaken.length }, "dead letters were redriven");
  return report;
}

/** Answers with the outcome, or after a while with how far it is; then it goes on by itself. */
async function soon<Outcome extends Report | Removal>(
  { pause, log, maxAnswerBytes }: LettersApiDeps,
  start: (watch: (outcome: Outcome) => void) => Promise<Outcome>,
  done: () => void = () => undefined,
): Promise<unknown> {
  let sofar: Outcome | undefined;
  const work = start((outcome) => {
    sofar = outcome;
  }).finally(done);
  const outcome = await Promise.race([work, pause(ANSWER_AFTER_MS)]);
  if (outcome) return fitting(outcome, maxAnswerBytes());
  work.catch((error: unknown) => log.error({ error: oneLine(error) }, "work on dead letters broke off"));
  return { running: true, ...fitting(sofar ?? {}, maxAnswerBytes()) };
}

/** An answer that has no room for everything tells the first of each list, and how many there are. */
function fitting(outcome: object, maxBytes: number): object {
  if (Buffer.byteLength(JSON.stringify(outcome)) <= maxBytes) return outcome;
  const lists = Object.entries(outcome) as [string, readonly unknown[]][];
  const counts = Object.fromEntries(lists.map(([name, { length }]) => [name, length]));
  return { ...Object.fromEntries(lists.map(([name, items]) => [name, items.slice(0, TOLD)])), counts };
}
