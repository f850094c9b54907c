import { listOfReader } from "../../contracts/lists.js";
import { oneLine } from "../../kernel/errors.js";
import { encodeId } from "../../kernel/ids.js";
import { type Lease, underLease } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { DAY, SECOND } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { PulledAuthors } from "../big-authors/pulled.js";
import type { Fenced } from "../fenced.redis.js";
import { AUTHOR_PREFIX, HOME_PREFIX, LIST_PREFIX, SHARED_PREFIX, SHARED_TOKENS, TRIMMED_KEY } from "../keys.js";
import { script } from "../scripts.redis.js";
import { listHomes } from "./homes.redis.js";

const TRIM_OLDER = script("trim-older", import.meta.url);

export function createTrimStore(scripts: Scripts, fenced: Fenced, authorStates: PulledAuthors) {
  const trim = (prefix: string, tokens: readonly string[], before: number): Promise<number> =>
    fenced.many({ script: TRIM_OLDER, prefix, tokens, before: [before] });
  return {
    /** Resolves to ms since the epoch, or to 0 if the last trimming was more than a day ago. */
    trimmedTo: async (): Promise<number> =>
      Number((await scripts.command("get", (client) => client.get(TRIMMED_KEY))) ?? 0),
    recordTrimmed: async (before: number): Promise<void> => {
      await scripts.command("set", (client) => client.set(TRIMMED_KEY, before, "PX", DAY));
    },
    /** Removes drops created before a time. Yields numbers of removed drops. */
    async *trimAll(before: number): AsyncGenerator<number> {
      yield await trim(SHARED_PREFIX, Object.values(SHARED_TOKENS), before);
      yield await trim(AUTHOR_PREFIX, [...(await authorStates.refresh()).keys()].map(encodeId), before);
      for await (const { users } of listHomes(scripts)) {
        const lists = users.flatMap((user) => listOfReader(user) ?? []);
        const homes = lists.length === 0 ? users : users.filter((user) => listOfReader(user) === undefined);
        yield await trim(HOME_PREFIX, homes.map(encodeId), before);
        if (lists.length > 0) yield await trim(LIST_PREFIX, lists.map(encodeId), before);
      }
    },
  };
}

interface TrimDeps {
  readonly store: ReturnType<typeof createTrimStore>;
  readonly retentionStart: () => number;
  readonly lease: Lease;
  readonly log: Logger;
  readonly everyMs?: number;
}

/**
 * Removes drops older than the retention. A process that does not know the new limit yet may write an older drop: reads
 * hide it until the next day's trim.
 */
export function startTrimming(deps: TrimDeps): Loop {
  return startLoop({
    work: (stopping) => trimOnce(deps, stopping),
    everyMs: deps.everyMs ?? 5 * SECOND,
    failed: (error) => deps.log.warn({ error: oneLine(error) }, "timelines could not be trimmed; it is tried again"),
    closeMs: SECOND,
  });
}

async function trimOnce({ store, retentionStart, lease, log }: TrimDeps, stopping: AbortSignal): Promise<void> {
  const before = retentionStart();
  if (before === 0 || (await store.trimmedTo()) >= before) return;
  await underLease(lease, async () => {
    let removed = 0;
    for await (const gone of store.trimAll(before)) {
      removed += gone;
      if (stopping.aborted) return;
    }
    await store.recordTrimmed(before);
    if (removed > 0) log.info({ removed, before }, "drops older than the retention were removed from all timelines");
  });
}
