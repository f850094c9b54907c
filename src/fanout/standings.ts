import type { StandingEvent } from "../contracts/events.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { type StandingChange, usersOfStanding, withoutErased } from "../state/index.js";
import type { FanoutDeps } from "./deps.js";

const USERS_AT_ONCE = 16;
const MAX_ROUNDS = 8;

type StandingDeps = Pick<FanoutDeps, "erased" | "standings" | "veiled" | "readAuthorDrops" | "maxEntries">;

/** Applies changes of standings, which may come twice, late and in any order. */
export type ApplyStandings = (changes: readonly StandingChange[]) => Promise<void>;

/**
 * Returns a function that records standings, of which every process has a copy a second later, and veils the drops that
 * homes may have of a suspended user. It asks for the standing again after it has veiled them: of two changes that are
 * applied at once, the last to write follows the one in force. Hosts need nothing: the URI of a drop names its host.
 */
export function createApplyStandings(deps: StandingDeps): ApplyStandings {
  const { standings, veiled } = deps;
  const veil = async (user: string): Promise<void> => {
    let before = "";
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const { standing, until } = await standings.stored(user);
      const now = `${standing} ${until}`;
      if (now === before) return;
      const drops = await dropsOf(deps, user);
      await (standing === "suspended" ? veiled.add(drops, until) : veiled.remove(drops));
      before = now;
    }
    throw new AppError("unavailable", "the standing of a user changes faster than it can be applied");
  };
  return async (changes) => {
    await standings.record(changes);
    const users = [...new Set(changes.flatMap(({ user_id }) => user_id ?? []))];
    await mapLimited(users, USERS_AT_ONCE, veil);
    // Pages that were read meanwhile are not those of the new standings.
    await standings.touch(users);
  };
}

/** Applies events of standings, but for those of erased users. */
export async function applyStandingEvents(
  { erased }: Pick<FanoutDeps, "erased">,
  apply: ApplyStandings,
  events: readonly StandingEvent[],
): Promise<void> {
  const kept = await withoutErased(erased, events, usersOfStanding);
  if (kept.length > 0) await apply(kept.map(({ payload }) => payload));
}

/** Veils new drops of suspended authors: those of other servers, and of users services that do not refuse them. */
export async function veilNew(
  { standings, veiled }: Pick<StandingDeps, "standings" | "veiled">,
  drops: readonly { readonly drop_id: string; readonly user_id?: string | undefined }[],
): Promise<void> {
  for (const { drop_id, user_id = "" } of drops) {
    if (standings.of(user_id) !== "suspended") continue;
    const { standing, until } = await standings.stored(user_id);
    if (standing === "suspended") await veiled.add([drop_id], until);
  }
}

/** Reads the newest drops of an author: a home has none but these. */
async function dropsOf({ readAuthorDrops, maxEntries }: StandingDeps, user: string): Promise<string[]> {
  const drops: string[] = [];
  let below: TimelineEntry | undefined;
  do {
    const page = await readAuthorDrops(user, below, undefined);
    drops.push(...page.drops.map(({ drop_id }) => drop_id));
    below = page.next;
  } while (below && drops.length < maxEntries);
  return drops;
}
