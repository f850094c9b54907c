import { createCache } from "../contracts/caches.js";
import { type DropPage, NO_DROPS } from "../contracts/timelines.js";
import { MAX_AHEAD_MS } from "../contracts/times.js";
import type { GetDropsByUserIDRequest, GetDropsByUserIDResponse } from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import { HOUR, sharedNow } from "../kernel/time.js";
import type { LeaveOut } from "./answers.js";
import { type Below, belowOf, type DropsRequest, METHOD, takePage } from "./drop-pages.js";

/** Reads a page of an author's drops. The deadline is in ms since the epoch. */
export type ReadDrops = (request: DropsRequest, deadline?: number) => Promise<DropPage>;

type CallDrops = (
  request: GetDropsByUserIDRequest,
  about: { readonly subject: string; readonly deadline: number | undefined },
) => Promise<GetDropsByUserIDResponse>;

interface DropReadsDeps {
  readonly leaveOut: LeaveOut;
  /** Counts pages that do not list the newest drops first. */
  readonly unordered: LeaveOut;
  /** Returns true if a call failed because its answer is larger than a message may be. */
  readonly isTooLarge: (error: unknown) => boolean;
  /** Returns true if the upstream refused an id or a position. */
  readonly isInvalidArgument: (error: unknown) => boolean;
}

/** Maximum number of calls for one page, before which drops may stand that are unreadable or larger than a message. */
const MAX_CALLS = 256;

/** Reads authors' drops. Drops that are unreadable or larger than a message are left out. */
export function createDropReads(deps: DropReadsDeps): (call: CallDrops) => ReadDrops {
  /** Size of a page, in drops, for authors whose pages were larger than a message. */
  const sizes = createCache<number>("authorPageSizes", { sizeOf: () => 0, ttl: HOUR });
  return (call) => (request, deadline) => {
    const about = { subject: request.author, deadline };
    const visible = visibleTo(request);
    const ask: Ask = async (below, limit, mayBeRefused = false) => {
      try {
        return await call({ ...visible, ...below, limit }, about);
      } catch (error) {
        if (deps.isTooLarge(error)) return undefined;
        if (mayBeRefused && deps.isInvalidArgument(error)) return { drops: [], end: true };
        throw error;
      }
    };
    return readPage(request, {
      sizes,
      ask,
      leaveOut: (count) => deps.leaveOut(METHOD, request.author, count),
      unordered: () => deps.unordered(METHOD, request.author),
    });
  };
}

const visibleTo = ({ author, reader }: DropsRequest) => ({
  user_id: author,
  reader_id: reader ?? "",
  without_direct: reader === "",
});

/**
 * Resolves to undefined if the page is larger than a message. If the call may be refused, a refusal is an empty page.
 */
type Ask = (below: Below, limit: number, mayBeRefused?: boolean) => Promise<GetDropsByUserIDResponse | undefined>;

interface Reading {
  readonly sizes: ReturnType<typeof createCache<number>>;
  readonly ask: Ask;
  readonly leaveOut: (count: number) => void;
  readonly unordered: () => void;
}

/** Reads a page. Continues past pages that are larger than a message, or have no drop with a position. */
async function readPage({ author, limit, below: from }: DropsRequest, reading: Reading): Promise<DropPage> {
  const { sizes, ask, leaveOut, unordered } = reading;
  let below = from;
  let position = belowOf(below);
  let isUnreadableId = false;
  for (let calls = 0; calls < MAX_CALLS; calls++) {
    const size = Math.min(limit, sizes.get(author) ?? limit);
    // An unreadable id may be refused: then the list ends here.
    const response = await ask(position, size, isUnreadableId);
    isUnreadableId = false;
    if (response) {
      const { page, leftOut, isUnordered, lastId = "" } = takePage(response, below, size);
      leaveOut(leftOut);
      if (isUnordered) unordered();
      if (page) {
        if (2 * size < limit) sizes.set(author, 2 * size);
        else if (size < limit) sizes.delete(author);
        return page;
      }
      if (lastId === "" || lastId === position.max_id) return NO_DROPS;
      position = { before: 0, max_id: lastId };
      isUnreadableId = true;
    } else if (size > 1) {
      sizes.set(author, size >> 1);
    } else {
      below = { score: await timeOfNext(ask, position.before || (from?.score ?? 0)), drop: "" };
      leaveOut(1);
      if (below.score <= 1) return NO_DROPS;
      position = belowOf(below);
    }
  }
  throw new AppError("failed", `${METHOD}: too many drops in a row cannot be read`);
}

/**
 * Finds the time of a drop that is larger than a message: one ms below it a page of one drop fits again. The other
 * drops of its ms are skipped, too.
 */
async function timeOfNext(ask: Ask, before: number): Promise<number> {
  const fits = async (time: number): Promise<boolean> => (await ask({ before: time, max_id: "" }, 1)) !== undefined;
  let [fitting, failing] = [1, before || sharedNow() + MAX_AHEAD_MS + 1];
  if (await fits(failing)) return failing;
  // The first step is the smallest: an older drop that is larger than a message, too, must not hide the drops between
  // them.
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
