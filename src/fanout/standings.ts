import type { StandingEvent } from "../contracts/events.js";
import { belongsHome, entryOfDrop, type TimelineEntry } from "../contracts/timelines.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import { type StandingChange, usersOfStanding, type VeilUsers, withoutErased } from "../state/index.js";
import type { FanoutDeps } from "./deps.js";
import { MAX_DROP_PAGES } from "./graph-drops.js";

const USERS_AT_ONCE = 16;
const MAX_ROUNDS = 8;

type VeilDeps = Pick<FanoutDeps, "standings" | "veiled">;
type StandingDeps = VeilDeps & Pick<FanoutDeps, "readAuthorDrops" | "maxEntries">;

/** Applies changes of standings, which may come twice, late and in any order. */
export type ApplyStandings = (changes: readonly StandingChange[]) => Promise<void>;

/**
 * Returns a function that records standings, of which every process has a copy a second later, and veils the drops that
 * homes may have of a suspended user. Hosts need nothing: homes know their drops by URIs and standing bylines.
 */
export function createApplyStandings(deps: StandingDeps): ApplyStandings {
  const { standings } = deps;
  return async (changes) => {
    await standings.record(changes);
    const users = [...new Set(changes.flatMap(({ user_id }) => user_id ?? []))];
    await mapLimited(users, USERS_AT_ONCE, (user) => applyVeil(deps, user, () => dropsOf(deps, user)));
    // Pages that were read meanwhile are not those of the new standings.
    await standings.touch(users);
  };
}

/** Returns a function that veils the drops of each of many users, also if those of others cannot be read. */
export function createVeilUsers(deps: StandingDeps): VeilUsers {
  return async (users) => {
    const failed: string[] = [];
    await mapLimited(users, USERS_AT_ONCE, (user) =>
      applyVeil(deps, user, () => dropsOf(deps, user)).catch(() => void failed.push(user)),
    );
    await deps.standings.touch(users);
    return failed;
  };
}

/**
 * Veils drops of a user, or shows them again. The standing is read again after the write: of two changes that are
 * applied at once, the last to write follows the one in force.
 */
async function applyVeil(
  { standings, veiled }: VeilDeps,
  user: string,
  readDrops: () => Promise<readonly string[]>,
): Promise<void> {
  let before = "";
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const [current] = await standings.stored([user]);
    const now = `${current?.standing} ${current?.until}`;
    if (now === before) return;
    const drops = await readDrops();
    await (current?.standing === "suspended" ? veiled.add(drops, current.until) : veiled.remove(drops));
    before = now;
  }
  throw new AppError("unavailable", "the standing of a user changes faster than it can be applied");
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

/**
 * Veils new drops of suspended authors: those of other servers, of users services that do not refuse them, and those
 * posted just before. Redis is asked, since a suspension that the copy does not have yet may have read the author's
 * drops before.
 */
export async function veilNew(
  deps: VeilDeps,
  drops: readonly { readonly drop_id: string; readonly user_id?: string | undefined }[],
): Promise<void> {
  const byAuthor = [...grouped(drops, ({ user_id }) => user_id ?? "")].filter(([author]) => author !== "");
  const current = await deps.standings.stored(byAuthor.map(([author]) => author));
  const suspended = byAuthor.filter((_, index) => current[index]?.standing === "suspended");
  await mapLimited(suspended, USERS_AT_ONCE, ([author, posted]) =>
    applyVeil(deps, author, async () => posted.map(({ drop_id }) => drop_id)),
  );
}

/**
 * Reads an author's newest drops, down to the last that a home may have. Replies to others and direct drops do not count:
 * some followers' homes have none of them, and older drops instead.
 */
async function dropsOf({ readAuthorDrops, maxEntries }: StandingDeps, user: string): Promise<string[]> {
  const drops: string[] = [];
  let below: TimelineEntry | undefined;
  let counted = 0;
  for (let pages = 0; pages < MAX_DROP_PAGES; pages++) {
    const page = await readAuthorDrops(user, below, undefined);
    drops.push(...page.drops.map(({ drop_id }) => drop_id));
    counted += page.drops.filter((drop) => belongsHome(drop, "") && !entryOfDrop(drop).by.parent).length;
    below = page.next;
    if (!below || counted >= maxEntries) break;
  }
  return drops;
}
