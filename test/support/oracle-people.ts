import type { TimelineEvent } from "./timeline-events.js";
import type { StandingName } from "./world-standings.js";

/** Authors whose drops a user does not see: all of them, or only their reposts. */
export type Hides = (user: string, target: string) => "all" | "reposts" | undefined;

/** The newest version of each thing, whatever the order of the events. */
class Newest<Fact> {
  readonly #facts = new Map<string, { readonly version: number; readonly fact: Fact }>();

  add(key: readonly string[], version: number, fact: Fact): void {
    const known = this.#facts.get(JSON.stringify(key));
    if (known === undefined || known.version < version) this.#facts.set(JSON.stringify(key), { version, fact });
  }

  of(...key: readonly string[]): Fact | undefined {
    return this.#facts.get(JSON.stringify(key))?.fact;
  }
}

/** Returns true if one follows another after these events. */
export function followsAfter(history: readonly TimelineEvent[]): (follower: string, author: string) => boolean {
  const edges = new Newest<boolean>();
  for (const { channel, payload } of history)
    if (channel === "user_followed" || channel === "user_unfollowed")
      edges.add([payload.follower_id, payload.following_id], payload.version, channel === "user_followed");
  return (follower, author) => edges.of(follower, author) ?? false;
}

/** Returns who hides whom at a time after these events: a block hides each from the other, a mute the target until its end. */
export function hidesAfter(history: readonly TimelineEvent[], at: number): Hides {
  const blocks = new Newest<boolean>();
  const mutes = new Newest<{ readonly until: number; readonly hides: "all" | "reposts" } | undefined>();
  for (const { channel, payload } of history) {
    if (channel === "user_blocked" || channel === "user_unblocked")
      blocks.add([payload.user_id, payload.target_id], payload.version, channel === "user_blocked");
    if (channel !== "user_muted" && channel !== "user_unmuted") continue;
    const { user_id, target_id, version, reposts_only = false, expires_at = 0 } = payload;
    const muted = { until: expires_at || Number.POSITIVE_INFINITY, hides: reposts_only ? "reposts" : "all" } as const;
    mutes.add([user_id, target_id], version, channel === "user_muted" ? muted : undefined);
  }
  return (user, target) => {
    if (blocks.of(user, target) || blocks.of(target, user)) return "all";
    const mute = mutes.of(user, target);
    return mute !== undefined && mute.until > at ? mute.hides : undefined;
  };
}

/** The standing of a user at a time after these events: the stricter one of their own and that of their host. */
export function standingsAfter(history: readonly TimelineEvent[], at: number): (user: string) => StandingName {
  const standings = new Newest<{ readonly until: number; readonly standing: StandingName }>();
  for (const { channel, payload } of history) {
    if (channel !== "standing_changed") continue;
    const { user_id = "", host = "", standing, until = 0, version } = payload;
    const fact = { until: until || Number.POSITIVE_INFINITY, standing: standing as StandingName };
    standings.add([user_id, host], version, fact);
  }
  return (user) => {
    const host = URL.canParse(user) ? new URL(user).host.split(".") : [];
    const subjects = [[user, ""], ...host.map((_, from) => ["", host.slice(from).join(".")])];
    const known = subjects.flatMap((subject) => standings.of(...subject) ?? []).filter(({ until }) => until > at);
    const has = (standing: StandingName): boolean => known.some((one) => one.standing === standing);
    return has("suspended") ? "suspended" : has("limited") ? "limited" : "active";
  };
}

/** When the last mute or standing of these events ends by itself, in ms since the epoch; 0 where none does. */
export function lastEnd(history: readonly TimelineEvent[]): number {
  const ends = history.map(({ payload }) =>
    "expires_at" in payload ? payload.expires_at : "until" in payload ? payload.until : 0,
  );
  return Math.max(0, ...ends.map((end = 0) => end));
}
