import { createCache, textsBytes } from "../../contracts/caches.js";
import type { Byline } from "../../contracts/timelines.js";
import { withDeadline } from "../../kernel/deadlines.js";
import { AppError, codeOf, invalid, oneLine } from "../../kernel/errors.js";
import { SingleFlight } from "../../kernel/sharing.js";
import { MINUTE, pause, SECOND } from "../../kernel/time.js";
import { isInvalidArgument, isNotFound, isUnimplemented, type Upstreams } from "../../upstreams/upstreams.grpc.js";
import type { HiddenUsers } from "../hidden/hidden.js";

/** The owner of a list, and the facts that decide about its drops. */
export interface ListReader {
  readonly owner: string;
  readonly members: ReadonlySet<string>;
  /** The members whom the owner follows. */
  readonly followed: ReadonlySet<string>;
}

export interface OwnedList {
  /** Empty: whoever owns the list. */
  readonly owner: string;
  readonly list: string;
}

/** Time to wait for the users service if an earlier answer is known. */
const PATIENCE_MS = SECOND;
/** Time limit of a call that pages share. */
const QUESTION_MS = 5 * SECOND;
/**
 * Pages and streams use an answer of at most this age: 500 members cost the users service some ms, and a reader turns
 * pages.
 */
export const LIST_READER_AGE_MS = SECOND;
/** An older answer names nobody whom the owner follows: they may have refused the owner since. */
const FOLLOWS_KNOWN_MS = MINUTE;

const NOBODY: ReadonlySet<string> = new Set();

const nameOf = ({ owner, list }: OwnedList): string => JSON.stringify([owner, list]);

export interface KnownReader {
  readonly reader: ListReader;
  /** Time of the answer, of performance.now(). */
  readonly readAt: number;
}

export type ListReaders = ReturnType<typeof createListReaders>;

/** Reads the members of lists. Pages show changes, and the end of a list, within {@link LIST_READER_AGE_MS}. */
export function createListReaders(readReader: Upstreams["listReader"]) {
  const known = createCache<KnownReader>("listReaders", {
    sizeOf: ({ reader: { members, followed } }) => 2 * (textsBytes([...members]) + textsBytes([...followed])),
  });
  /** @throws AppError `notfound` if the user has no such list */
  const ask = async ({ owner, list }: OwnedList, deadline: number): Promise<KnownReader> => {
    const name = nameOf({ owner, list });
    const readAt = performance.now();
    try {
      const { member_ids, followed_ids, owner_id } = await readReader(owner, list, deadline);
      // An older service does not know the field.
      if (owner === "" && owner_id === "") throw new AppError("notfound", "list_id: the list has no owner");
      const reader = { owner: owner || owner_id, members: new Set(member_ids), followed: new Set(followed_ids) };
      const answer = { reader, readAt };
      known.set(name, answer);
      return answer;
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal) known.delete(name);
      throw refusal ?? error;
    }
  };
  const read = async (owned: OwnedList, deadline: number): Promise<ListReader> => (await ask(owned, deadline)).reader;
  const flight = new SingleFlight<KnownReader>();
  const askInTurn = async (owned: OwnedList, last: KnownReader | undefined, patienceMs: number) => {
    if (last) await pause(last.readAt + LIST_READER_AGE_MS - performance.now());
    return ask(owned, Date.now() + patienceMs);
  };
  const readSince = async (owned: OwnedList, since: number, patienceMs: number): Promise<KnownReader> => {
    const name = nameOf(owned);
    for (let last = known.get(name); ; ) {
      if (last && last.readAt >= since) return last;
      const before = last;
      last = await flight.run(name, () => askInTurn(owned, before, patienceMs));
    }
  };
  return {
    read,
    /** Resolves to an answer of now. `patienceMs` is its time limit. @throws as `read` */
    readNow: (owned: OwnedList, patienceMs: number): Promise<ListReader> => read(owned, Date.now() + patienceMs),
    /**
     * Resolves to an answer that was asked for at `since` or later, of performance.now(). Callers share the question,
     * which is asked once in {@link LIST_READER_AGE_MS} for a list. `patienceMs` is the time limit of the answer.
     */
    readSince,
    /**
     * Resolves to the last known reader while the users service does not answer, after {@link FOLLOWS_KNOWN_MS} without
     * the followed members. Callers share a question, which goes on when they have gone: if each asked anew, a service
     * that is slower than they wait would get ever more questions, and no answer would be used.
     */
    readOrLast: async (owned: OwnedList, deadline: number): Promise<ListReader & { readonly isOld: boolean }> => {
      const name = nameOf(owned);
      const before = known.get(name);
      const until = before ? Math.min(deadline, Date.now() + PATIENCE_MS) : deadline;
      try {
        const asked = readSince(owned, performance.now() - LIST_READER_AGE_MS, QUESTION_MS);
        return { ...(await withDeadline(asked, until)).reader, isOld: false };
      } catch (error) {
        const last = known.get(name) ?? before;
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
