import { listOfReader, listReader } from "../contracts/lists.js";
import { bylineOf } from "../contracts/timelines.js";
import { createBoundedQueue } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { pause, SECOND } from "../kernel/time.js";
import { createJudge, createListReaders, type HiddenUsers, LIST_READER_AGE_MS } from "../state/index.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import type { Notification } from "./notification.js";

/** A list that its owner reads by an event stream. */
export interface OpenList {
  /** Name of the list in NOTIFY and in the registry. */
  readonly reader: string;
  /**
   * Resolves if the user has the list. Uses an answer of the users service of at most `maxAgeMs` ago; 0: one of now.
   *
   * @throws AppError `notfound` if the user has no such list, `unavailable` while nobody knows that
   */
  check(maxAgeMs: number): Promise<void>;
  /** Resolves to true if the owner sees a drop with this byline, as text. @throws as {@link check} */
  shows(by: string, notification: Notification): Promise<boolean>;
}

export interface ListSources {
  readonly listReader: Upstreams["listReader"];
  readonly readHidden: (user: string) => Promise<HiddenUsers>;
  /** True: replies to people who are neither members nor the owner are left out. */
  readonly judgesReplies: boolean;
}

const PATIENCE_MS = 5 * SECOND;
/** If Redis loses its registrations, each open stream of a list is checked. */
const CHECKS = {
  atOnce: 64,
  waiting: 10_000,
  refusal: () => new AppError("unavailable", "too many checks of lists are waiting"),
};

export const noList = () => new AppError("notfound", "the user has no such list");

/**
 * Returns a function that opens a list. Fan-out tells a list of all drops of its members. The stream leaves out drops that
 * the owner may not see, by the current members, follows and hidden users, as pages do.
 *
 * @throws AppError `notfound` for what names no list, or if no users service is configured
 */
export function createOpenList(sources: ListSources | undefined) {
  if (!sources) return (): OpenList => unserved();
  const { listReader: readReader, readHidden, judgesReplies } = sources;
  const readers = createListReaders(readReader);
  const inTurn = createBoundedQueue(CHECKS);
  return (owner: string, list: string): OpenList => {
    const reader = listReader(list);
    if (listOfReader(reader) === undefined) throw noList();
    const owned = { owner, list };
    let known: { readonly judgeAll: ReturnType<typeof createJudge>; readonly readAt: number } | undefined;
    const read = async (since: number) => {
      if (known && known.readAt >= since) return known;
      const before = performance.now();
      const [answer, hidden] = await Promise.all([readers.readSince(owned, since, PATIENCE_MS), readHidden(owner)]);
      const readAt = Math.min(before, answer.readAt);
      const fresh = { judgeAll: createJudge(answer.reader, hidden, judgesReplies), readAt };
      known = fresh;
      // The members of a full list take 40 KB, and most streams are quiet.
      void pause(LIST_READER_AGE_MS).then(() => {
        if (known === fresh) known = undefined;
      });
      return fresh;
    };
    return {
      reader,
      check: async (maxAgeMs) => {
        const ask = (): Promise<unknown> =>
          maxAgeMs > 0
            ? readers.readSince(owned, performance.now() - maxAgeMs, PATIENCE_MS)
            : readers.readNow(owned, PATIENCE_MS);
        await inTurn(ask, owner);
      },
      shows: async (text, { heardAt = performance.now() }) => {
        const by = bylineOf(text);
        const recently = performance.now() - LIST_READER_AGE_MS;
        const sees = async ({ judgeAll }: NonNullable<typeof known>) => (await judgeAll([by]))(by) === true;
        if (known && known.readAt >= recently && (await sees(known))) return true;
        // An earlier answer may lack people whom the owner has added or followed since.
        return sees(await read(Math.max(heardAt, recently)));
      },
    };
  };
}

function unserved(): never {
  throw new AppError("notfound", "this gateway serves no streams of lists: TIMELINE_USER_SERVICE_ADDR is not set");
}
