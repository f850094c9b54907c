import { hostOf, type KnownStanding, STANDING_NAMES, type StandingSubject } from "../../contracts/standings.js";
import type { StandingEntry } from "../../gen/avion/users.js";
import { idFault } from "../../kernel/ids.js";
import { readPages } from "../../kernel/paging.js";
import { DAY, sharedNow } from "../../kernel/time.js";
import { isUnimplemented, type Upstreams } from "../../upstreams/upstreams.grpc.js";
import type { ReadStandings, StandingChange } from "./standings.redis.js";

const ENTRIES_A_PAGE = 1_000;
/** Late events of what was lifted before this time are no longer in the log. */
const LIFTED_MS = 8 * DAY;

type Asked = Pick<Upstreams, "standings" | "changedStandings" | "leaveOut">;

/** Returns the change that an entry of the users service stands for; undefined if it breaks the contract. */
export function changeOf({ user_id, host, standing, until, version }: StandingEntry): StandingChange | undefined {
  const name = STANDING_NAMES[standing as KnownStanding];
  const named = host === "" ? idFault(user_id) === undefined && { user_id } : hostOf(host) && { host: hostOf(host) };
  if (!named || name === undefined || !Number.isSafeInteger(version)) return undefined;
  return { ...(named as StandingSubject), standing: name, until, version };
}

/** Reads the standings of a users service. One without these methods has none. */
export function createReadStandings(upstreams: Asked): ReadStandings {
  return async function* () {
    const page = (page_token: string) => ({ page_size: ENTRIES_A_PAGE, page_token });
    const since = { since: sharedNow() - LIFTED_MS, until: 0 };
    try {
      for (const read of [
        (token: string) => upstreams.standings(page(token)),
        (token: string) => upstreams.changedStandings({ ...since, ...page(token) }),
      ])
        for await (const { entries } of readPages(read)) {
          const known = entries.map(changeOf).filter((change) => change !== undefined);
          upstreams.leaveOut("ListStandings", "", entries.length - known.length);
          yield known;
        }
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
    }
  };
}
