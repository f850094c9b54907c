import type { AuthorShown } from "../../contracts/tables.js";
import { AppError } from "../../kernel/errors.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import { HOUR } from "../../kernel/time.js";
import type { RedisClock } from "../../platform/redis/clock.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { ERASED_KEY, PULLED_KEY, postedKey } from "../keys.js";
import { script } from "../scripts.redis.js";
import { PULL_STATES, type Published, type PulledAuthor, type PullState } from "./pulled.js";

const CHANGE_PULLED = script("change-pulled", import.meta.url);
const NOTE_DROP = script("note-drop", import.meta.url);

/** State as stored. A stored `pushed` is an operator's choice: the author stays pushed with any number of followers. */
export interface StoredState {
  readonly state: PullState | "pushed";
  readonly by: PulledAuthor["by"];
  readonly since: number;
}

export const authorAsJson = (author_id: string, stored: StoredState | undefined): AuthorShown => ({
  author_id,
  state: stored?.state ?? "pushed",
  by: stored?.by ?? "count",
  since: stored ? new Date(stored.since).toISOString() : null,
});

/** Times of the last and the first change. Null: there was no change, or the registry was lost. */
interface Version {
  readonly version: string | null;
  readonly born: string | null;
}

export interface Stored extends Version {
  readonly authors: ReadonlyMap<string, StoredState>;
}

export type PullStore = ReturnType<typeof createPullStore>;

/** Maximum number of authors, which bounds the copy of each process: about 1 MB. */
export const MAX_AUTHORS = 10_000;
/** Maximum number of drops that are counted. */
export const MAX_DROPS_AN_HOUR = 1_000;

const VERSION_FIELD = "~version";
const BORN_FIELD = "~born";
const VALUE = new RegExp(`^(pushed|${PULL_STATES.join("|")}):(hand|count|pressure):(\\d+)$`);

export function createPullStore({ run, command }: Scripts, clock: RedisClock) {
  const isErased = async (author: string): Promise<boolean> =>
    (await command("zscore", (client) => client.zscore(ERASED_KEY, encodeId(author)))) !== null;
  return {
    async version(): Promise<Version> {
      const fields = [VERSION_FIELD, BORN_FIELD] as const;
      const [version = null, born = null] = await command("hmget", (client) => client.hmget(PULLED_KEY, ...fields));
      return { version, born };
    },
    async read(): Promise<Stored> {
      const {
        [VERSION_FIELD]: version = null,
        [BORN_FIELD]: born = null,
        ...fields
      } = await command("hgetall", (client) => client.hgetall(PULLED_KEY));
      const authors = Object.entries(fields).map(([token, value]) => [decodeId(token), parse(value)] as const);
      return { version, born, authors: new Map(authors) };
    },
    /**
     * Returns false if the author's state is not `from` any more, or the registry is full. Removes an erased author.
     */
    async change(
      author: string,
      from: StoredState | undefined,
      to: Omit<StoredState, "since"> | undefined,
    ): Promise<boolean> {
      const current = from ? `${from.state}:${from.by}:${from.since}` : "";
      const next = to && !(await isErased(author)) ? `${to.state}:${to.by}` : "";
      return (await run(CHANGE_PULLED, [PULLED_KEY], [encodeId(author), current, next, MAX_AUTHORS])) === 1;
    },
    /** Resolves to the number of the author's drops in the hour up to this drop. */
    countDrops: async ({ author, drop, at: time }: Published): Promise<number> =>
      Number(await run(NOTE_DROP, [postedKey(author)], [drop, time, HOUR, MAX_DROPS_AN_HOUR])),
    /** Resolves to ms since the epoch, by the clock of Redis. */
    now: (): Promise<number> => clock.now(PULLED_KEY),
  };
}

/**
 * @throws AppError `unavailable`: a newer version may have written the value, so no event may be dead-lettered for it
 */
function parse(value: string): StoredState {
  const [, state, by, since] = VALUE.exec(value) ?? [];
  if (state === undefined) {
    throw new AppError("unavailable", "the registry of pulled authors holds a value that this version does not know");
  }
  return { state: state as StoredState["state"], by: by as StoredState["by"], since: Number(since) };
}
