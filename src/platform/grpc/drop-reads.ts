import { LRUCache } from "lru-cache";
import { type DropPage, NO_DROPS } from "../../contracts/timelines.js";
import { MAX_AHEAD_MS } from "../../contracts/times.js";
import type { GetDropsByUserIDRequest, GetDropsByUserIDResponse } from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import { HOUR, sharedNow } from "../../kernel/time.js";
import type { LeaveOut } from "./answers.js";
import { type Answered, isInvalidArgument, isTooLarge, promised } from "./call.js";
import { type Below, belowOf, type DropsRequest, METHOD, takePage } from "./drop-pages.js";

/** The deadline is in ms since the epoch. */
export type ReadDrops = (
  request: DropsRequest,
  deadline: number | undefined,
  answered: (error: AppError | undefined, page?: DropPage) => void,
) => void;

type CallDrops = (
  request: GetDropsByUserIDRequest,
  about: { readonly subject: string; readonly deadline: number | undefined },
  answered: Answered<GetDropsByUserIDResponse>,
) => void;

/** The bound is for one page: drops that cannot be read, or are larger than a message, may stand before it. */
const MAX_CALLS = 256;
const MAX_AUTHORS = 10_000;

/** Reads authors' drops. What cannot be read, or fits no message, is left out. */
export function createDropReads(leaveOut: LeaveOut): (call: CallDrops) => ReadDrops {
  /** Authors whose pages were larger than a message are asked for so many drops. */
  const sizes = new LRUCache<string, number>({ max: MAX_AUTHORS, ttl: HOUR });
  return (call) => (request, deadline, answered) => {
    const { author } = request;
    const size = Math.min(request.limit, sizes.get(author) ?? request.limit);
    const about = { subject: author, deadline };
    const ask = (below: Below, limit: number, given: Answered<GetDropsByUserIDResponse>): void =>
      call({ ...visibleTo(request), ...below, limit }, about, given);
    const reading: Reading = {
      ...{ request, sizes },
      leaveOut: (count) => leaveOut(METHOD, author, count),
      ask: (below, limit) => promised((given) => ask(below, limit, given)),
    };
    ask(belowOf(request.below), size, (error, response) => {
      if (error && !isTooLarge(error)) return answered(error);
      let page: DropPage | undefined;
      try {
        const taken = response && takePage(response, request.below, size);
        if (taken) reading.leaveOut(taken.leftOut);
        page = taken?.page;
      } catch (broken) {
        return answered(broken as AppError);
      }
      if (page && size === request.limit) return answered(undefined, page);
      readOn(reading, { size, error, response }).then((read) => answered(undefined, read), answered);
    });
  };
}

const visibleTo = ({ author, reader }: DropsRequest) => ({
  user_id: author,
  reader_id: reader ?? "",
  without_direct: reader === "",
});

interface Reading {
  readonly request: DropsRequest;
  readonly sizes: LRUCache<string, number>;
  readonly leaveOut: (count: number) => void;
  readonly ask: (below: Below, limit: number) => Promise<GetDropsByUserIDResponse>;
}

interface Tried {
  readonly size: number;
  readonly error: AppError | undefined;
  readonly response?: GetDropsByUserIDResponse | undefined;
}

/** Goes on from a page that is larger than a message, or has no drop with a position. */
async function readOn(reading: Reading, first: Tried): Promise<DropPage> {
  const { request, sizes, leaveOut, ask } = reading;
  let { below } = request;
  let at = belowOf(below);
  let tried: Tried = first;
  for (let calls = 1; calls < MAX_CALLS; calls++) {
    const { size, response } = tried;
    const taken = response && takePage(response, below, size);
    if (taken && tried !== first) leaveOut(taken.leftOut);
    if (taken?.page) {
      sizes.set(request.author, 2 * size);
      if (2 * size >= request.limit) sizes.delete(request.author);
      return taken.page;
    }
    if (taken) {
      if (taken.lastId === undefined || taken.lastId === at.max_id || taken.lastId === "") return NO_DROPS;
      at = { before: 0, max_id: taken.lastId };
    } else if (size > 1) {
      sizes.set(request.author, size >> 1);
    } else {
      below = { score: await timeOfNext(reading, at.before || (request.below?.score ?? 0)), drop: "" };
      leaveOut(1);
      if (below.score <= 1) return NO_DROPS;
      at = belowOf(below);
    }
    const next = Math.min(request.limit, sizes.get(request.author) ?? request.limit);
    tried = await askSize(ask, at, next).catch((error: unknown) => {
      // An id that cannot be read may be refused: then nothing is known to follow.
      if (taken && isInvalidArgument(error))
        return { size: next, error: undefined, response: { drops: [], end: true } };
      throw error;
    });
  }
  throw new AppError("failed", `${METHOD}: too many drops in a row cannot be read`);
}

async function askSize(ask: Reading["ask"], at: Below, size: number): Promise<Tried> {
  try {
    return { size, error: undefined, response: await ask(at, size) };
  } catch (error) {
    if (error instanceof AppError && isTooLarge(error)) return { size, error };
    throw error;
  }
}

/** Finds the time of a drop that fits no message: a page of one below it does. Its ms goes with it. */
async function timeOfNext({ ask }: Reading, before: number): Promise<number> {
  const fits = async (time: number): Promise<boolean> =>
    (await askSize(ask, { before: time, max_id: "" }, 1)).error === undefined;
  let [fitting, failing] = [1, before || sharedNow() + MAX_AHEAD_MS + 1];
  if (await fits(failing)) return failing;
  // Downwards first: a drop further below that fits no message, either, must not hide those between them.
  for (let step = 1; failing - step > fitting; step *= 2) {
    if (await fits(failing - step)) fitting = failing - step;
    else failing -= step;
  }
  while (failing - fitting > 1) {
    const middle = Math.floor((fitting + failing) / 2);
    if (await fits(middle)) fitting = middle;
    else failing = middle;
  }
  return fitting;
}
