import { createCache, textsBytes } from "../contracts/caches.js";
import type { Byline } from "../contracts/timelines.js";
import { withDeadline } from "../kernel/deadlines.js";
import { AppError, codeOf, invalid, oneLine } from "../kernel/errors.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import type { HiddenUsers } from "../state/index.js";
import { isInvalidArgument, isNotFound, isUnimplemented, type Upstreams } from "../upstreams/upstreams.grpc.js";

/** The owner of a list, and the facts that decide about its drops. */
export interface ListReader {
  readonly owner: string;
  readonly members: ReadonlySet<string>;
  /** The members whom the owner follows. */
  readonly followed: ReadonlySet<string>;
}

export interface OwnedList {
  readonly owner: string;
  readonly list: string;
}

/** Time to wait for the users service if an earlier answer is known. */
const PATIENCE_MS = SECOND;
/** Pages use an answer of at most this age: 500 members cost the users service some ms, and a reader turns pages. */
const MAX_AGE_MS = SECOND;
/** An older answer names nobody whom the owner follows: they may have refused the owner since. */
const FOLLOWS_KNOWN_MS = MINUTE;

const NOBODY: ReadonlySet<string> = new Set();

interface Known {
  readonly reader: ListReader;
  /** Time of the answer, of performance.now(). */
  readonly readAt: number;
}

export type ListReaders = ReturnType<typeof createListReaders>;

/** Reads the members of lists. What has changed, also that a list is gone, shows on pages within {@link MAX_AGE_MS}. */
export function createListReaders(readReader: Upstreams["listReader"]) {
  const known = createCache<Known>("listReaders", {
    sizeOf: ({ reader: { members, followed } }) => 2 * (textsBytes([...members]) + textsBytes([...followed])),
  });
  /** @throws AppError `notfound` if the user has no such list */
  const read = async ({ owner, list }: OwnedList, deadline: number): Promise<ListReader> => {
    const name = JSON.stringify([owner, list]);
    const readAt = performance.now();
    try {
      const { member_ids, followed_ids } = await readReader(owner, list, deadline);
      const reader = { owner, members: new Set(member_ids), followed: new Set(followed_ids) };
      known.set(name, { reader, readAt });
      return reader;
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal) known.delete(name);
      throw refusal ?? error;
    }
  };
  return {
    read,
    /**
     * Resolves to the last known reader while the users service does not answer, after {@link FOLLOWS_KNOWN_MS} without
     * the followed members.
     */
    readOrLast: async (owned: OwnedList, deadline: number): Promise<ListReader & { readonly isOld: boolean }> => {
      const last = known.get(JSON.stringify([owned.owner, owned.list]));
      if (last && performance.now() - last.readAt < MAX_AGE_MS) return { ...last.reader, isOld: false };
      const until = last ? Math.min(deadline, Date.now() + PATIENCE_MS) : deadline;
      try {
        return { ...(await withDeadline(read(owned, until), until)), isOld: false };
      } catch (error) {
        if (!last || ["notfound", "invalid"].includes(codeOf(error))) throw error;
        const followed = performance.now() - last.readAt < FOLLOWS_KNOWN_MS ? last.reader.followed : NOBODY;
        return { ...last.reader, followed, isOld: true };
      }
    },
  };
}

function refusalOf(error: unknown): AppError | undefined {
  if (isNotFound(error)) return new AppError("notfound", "list_id: is no list of the user");
  if (isUnimplemented(error)) return new AppError("notfound", "list_id: the users service has no lists");
  return isInvalidArgument(error) ? invalid("list_id", oneLine(error)) : undefined;
}

/** "unknown": the owner sees the drop if it is not for followers only. */
export type Judge = (by: Byline) => boolean | "unknown";

/** Returns a function that tells which drops of a list the owner sees, by their bylines. */
export const createJudge =
  ({ owner, members, followed }: ListReader, hidden: HiddenUsers, judgesReplies: boolean) =>
  async (bylines: readonly Byline[]): Promise<Judge> => {
    const asked = await hidden.among(bylines);
    const isAnswerToOthers = ({ author, parent }: Byline): boolean =>
      parent !== undefined && author !== owner && parent !== owner && !members.has(parent);
    return (by) => {
      if (!members.has(by.author) || asked.hides(by) || (judgesReplies && isAnswerToOthers(by))) return false;
      if (by.forFollowers === undefined || by.author === owner || followed.has(by.author)) return true;
      return by.forFollowers === "unknown" ? "unknown" : false;
    };
  };
