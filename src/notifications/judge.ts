import { NotificationKind } from "../gen/avion/notifications.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import type { HiddenStore, Standings } from "../state/index.js";
import type { Change } from "./changes.js";

export interface JudgeDeps {
  readonly hidden: Pick<HiddenStore, "known">;
  readonly standings: Pick<Standings, "of">;
  readonly follows: (user: string, other: string) => Promise<boolean>;
}

const USERS_AT_ONCE = 64;

type Deed = Pick<Change, "user" | "kind" | "actor">;

/** Returns the byline by which relations hide a notification: a mute of reposts hides those of reposts only. */
const bylineOf = ({ user, kind, actor }: Deed) =>
  kind === NotificationKind.REPOST ? { author: actor, original: user } : { author: actor };

/** Leaves out notifications by people who are hidden from the user, or suspended. */
export async function withoutHidden<One extends Omit<Deed, "user">>(
  { hidden, standings }: Pick<JudgeDeps, "hidden" | "standings">,
  user: string,
  deeds: readonly One[],
  deadline?: number,
): Promise<readonly One[]> {
  if (deeds.length === 0) return deeds;
  const bylines = deeds.map(({ kind, actor }) => bylineOf({ user, kind, actor }));
  const asked = await (await hidden.known(user, deadline)).among(bylines);
  return deeds.filter((_, index) => {
    const by = bylines[index];
    return by !== undefined && standings.of(by.author) !== "suspended" && !asked.hides(by);
  });
}

/** Returns the changes; those of which the user is not to be told are inactive. */
export async function judge(deps: JudgeDeps, changes: readonly Change[]): Promise<readonly Change[]> {
  const active = changes.filter((change) => change.active);
  const told = new Set<Change>();
  await mapLimited([...grouped(active, ({ user }) => user)], USERS_AT_ONCE, async ([user, deeds]) => {
    for (const deed of await withoutHidden(deps, user, deeds)) if (await mayTell(deps, deed)) told.add(deed);
  });
  return changes.map((change) => (change.active && !told.has(change) ? { ...change, active: false } : change));
}

/** Homes have no reply to a suspended user. */
async function mayTell({ standings, follows }: JudgeDeps, change: Change): Promise<boolean> {
  const { user, actor, parent_author, isForFollowers = false } = change;
  if (parent_author !== undefined && standings.of(parent_author) === "suspended") return false;
  return (!isForFollowers && standings.of(actor) !== "limited") || follows(user, actor);
}
