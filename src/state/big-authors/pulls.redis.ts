import { randomUUID } from "node:crypto";
import { AppError } from "../../kernel/errors.js";
import { encodeId } from "../../kernel/ids.js";
import { SingleFlight } from "../../kernel/sharing.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { type Erased, writeUnlessErased } from "../erased/erasures.js";
import { pullsKey } from "../keys.js";
import { script } from "../scripts.redis.js";
import { currentOf, isMerged, PULLS_FILLING, type PulledAuthors } from "./pulled.js";

const FILL_PULLS = script("fill-pulls", import.meta.url);

export type Pulls = ReturnType<typeof createPulls>;

type Following = readonly string[];

interface Filled {
  readonly following: Following;
  /** False if the set was changed meanwhile. */
  readonly known: boolean;
}

const MAX_ROUNDS = 8;

/** Stores for each user the pulled authors among those they follow. */
export function createPulls(
  { run, command }: Scripts,
  authorStates: PulledAuthors,
  erased: Pick<Erased, "among">,
  ttlMs: number,
) {
  const flight = new SingleFlight<void>();
  const fillOnce = async (user: string, read: () => Promise<Following>, how: "begin" | "afresh"): Promise<Filled> => {
    const step = (what: string, mark: string, authors: readonly string[] = []) =>
      run(FILL_PULLS, [pullsKey(user)], [what, mark, ttlMs, ...authors]);
    const mark = (await step(how, PULLS_FILLING + randomUUID())) as string | null;
    const following = await read();
    if (mark === null) return { following, known: true };
    const registry = await authorStates.refresh();
    const tokens = following.filter((author) => isMerged(registry.get(author))).map(encodeId);
    return { following, known: (await step("finish", mark, tokens)) === 1 };
  };
  const filling = (
    user: string,
    ...source: [read: () => Promise<Following>, how: "begin" | "afresh"]
  ): Promise<Filled> =>
    writeUnlessErased(erased, user, {
      write: () => fillOnce(user, ...source),
      remove: () => command("del", (client) => client.del(pullsKey(user))),
    });
  return {
    /**
     * Reads whom a user follows, and stores the pulled ones if nothing changes meanwhile. `afresh`: also replaces a
     * complete set.
     */
    async following(user: string, read: () => Promise<Following>, afresh = false): Promise<Following> {
      if ((await currentOf(authorStates)).size === 0) return read();
      return (await filling(user, read, afresh ? "afresh" : "begin")).following;
    },
    /** Resolves once the pulled authors of the user are known. */
    fill: (user: string, read: () => Promise<Following>): Promise<void> =>
      flight.run(user, async () => {
        for (let round = 0; round < MAX_ROUNDS; round++) if ((await filling(user, read, "begin")).known) return;
        throw new AppError("unavailable", "the followings of a user change faster than they can be read");
      }),
  };
}
