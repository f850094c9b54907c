import { ACTORS, APPROVER, BIG_AUTHOR, CHURNERS, MUTERS, REMOTE_HOST, SMALL_AUTHOR, SUSPECT } from "./history-cast.js";
import { below, oneOf, type Random } from "./random.js";
import { followed, related, standing, type TimelineEvent, unfollowed } from "./timeline-events.js";
import type { World } from "./world.js";

const STANDINGS = ["active", "limited", "suspended", "suspended"] as const;
/** Mutes and standings that end by themselves do so within this time, in ms. */
const ENDS_MS = 4_000;

/** The steps of a random history in which people mute others, are suspended, and ask to follow. */
export class PeopleHistory {
  readonly #requests = new Set<string>();

  constructor(
    private readonly random: Random,
    private readonly world: World,
  ) {}

  step(): TimelineEvent[] {
    const dice = this.random();
    if (dice < 0.6) return [this.#relation()];
    return dice < 0.8 ? [this.#standing()] : this.#request();
  }

  #relation(): TimelineEvent {
    const user = oneOf(this.random, MUTERS);
    const target = oneOf(this.random, [BIG_AUTHOR, SMALL_AUTHOR, SUSPECT]);
    if (this.world.relation(user, target).muting)
      return related("user_unmuted", user, target, { version: this.world.unmute(user, target) });
    const [reposts_only, expires_at] = [this.random() < 0.3, this.#end()];
    const version = this.world.mute(user, target, reposts_only, expires_at);
    return related("user_muted", user, target, { version, reposts_only, expires_at });
  }

  #standing(): TimelineEvent {
    const users = [SUSPECT, SUSPECT, "cleo", ACTORS[1] as string].map((user_id) => ({ user_id }));
    const subject = oneOf(this.random, [...users, { host: REMOTE_HOST }]);
    const [name, until] = [oneOf(this.random, STANDINGS), this.#end()];
    return standing(subject, name, { until, version: this.world.standings.set(subject, name, until) });
  }

  /** A request is no event, and neither is its end without acceptance. */
  #request(): TimelineEvent[] {
    const follower = oneOf(this.random, CHURNERS);
    if (this.world.follows(follower, APPROVER))
      return [unfollowed(follower, APPROVER, this.world.unfollow(follower, APPROVER))];
    if (!this.#requests.delete(follower)) this.#requests.add(follower);
    else if (this.random() < 0.8) return [followed(follower, APPROVER, this.world.follow(follower, APPROVER))];
    return [];
  }

  /** In ms since the epoch; of half of them 0: never. */
  #end(): number {
    return this.random() < 0.5 ? 0 : Date.now() + 500 + below(this.random, ENDS_MS);
  }
}
